/*
 * What the main functions of unit tests have in common: suites are registered between the two
 * calls.
 */
#ifndef DEJA_TESTS_LIB_SUITES_H
#define DEJA_TESTS_LIB_SUITES_H

#include <CUnit/Basic.h>

/* From here on a test or suite that cannot be registered or prepared ends the program. */
static inline void suites_begin(void)
{
	CU_set_error_action(CUEA_ABORT);
	CU_initialize_registry();
}

/* Run all; the program's exit status. */
static inline int suites_run(void)
{
	unsigned failed;

	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failed != 0;
}

#endif
