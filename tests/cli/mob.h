/* What the threads of mob.c do, in two files. */
#ifndef DEJA_TESTS_CLI_MOB_H
#define DEJA_TESTS_CLI_MOB_H

#include <pthread.h>
#include <sys/types.h>

#define PAGE 4096ul
#define MOST 64 /* threads */
#define MORE 64 /* acts of mob-more.c */

typedef void mob_act(unsigned *of);

/* Acts of mob-more.c; what they need before and in a process. */
extern mob_act *const mob_more[];
extern const unsigned mob_n_more;
void mob_begin(void);

/* A number below n, the next that belongs to `of`. */
unsigned draw(unsigned *of, unsigned n);
/* A handler that counts. */
void on_signal(int sig);
/* Where six bytes are writable: a function that returns the number, which is below 256. */
void write_code(void *p, int number);
/* What the function there returns. */
int call(const void *p);
/* Something is not as it must be: says so, and ends the program. */
void fail(const char *what);
/* The child ends with that status. */
void wait_for(pid_t pid, int status);
/* Threads to be: one that returns what it is given, and one that never returns. */
void *nothing(void *arg);
void *forever(void *arg);
/* Makes a thread. While another is in the middle of an exec the kernel makes none (EAGAIN, as they
 * share a root and a directory): then this one waits until the program has been replaced. */
void make_thread(pthread_t *thread, void *(*does)(void *), void *arg);

/* A child that goes on to make threads: not while somebody loads or unloads, as the loader's locks
 * are not made anew in it. */
pid_t fork_for_threads(void);
/* Taken by whoever loads. */
extern pthread_mutex_t mob_loading;

/* The threads that are there, by their numbers; 0 where there is none. */
extern pid_t mob_tids[MOST];
extern unsigned mob_n;

#endif
