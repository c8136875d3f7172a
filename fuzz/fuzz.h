/*
 * What a fuzz target and its driver share: LLVM's interface (libFuzzer documentation,
 * "Fuzz Target"). A target file defines LLVMFuzzerTestOneInput and links either with libFuzzer
 * or with fuzz/driver.c.
 */
#ifndef DEJA_FUZZ_FUZZ_H
#define DEJA_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#endif
