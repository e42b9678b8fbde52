// A wall clock that a test sets, for a process that is started with this library in LD_PRELOAD. Times of CLOCK_REALTIME
// are shifted, and so are waits until such a time: they end when the shifted clock says so, as they would when the
// machine's own clock is set.
//
//   WEIR_TEST_WALL_CLOCK=FILE   eight bytes, a number in the machine's own order: the shift in seconds. Read at every
//   look, so whoever writes
//                               the file sets the clock in mid-run.
//   weir_test_set_wall_clock()  the same from inside, without a file
//
// Sees calls that go through libc's names: system calls of Abseil's futexes, waits of pthreads. Not what libc calls
// inside itself.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t own_shift;
static volatile int64_t* shift = &own_shift;

// How often a wait looks whether the clock has been set.
#define LOOK_NS 20000000

static int (*real_clock_gettime)(clockid_t, struct timespec*);
static long (*real_syscall)(long, ...);
static int (*real_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
static int (*real_sem_clockwait)(sem_t*, clockid_t, const struct timespec*);

__attribute__((constructor(101))) static void Begin(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  real_clockwait = (int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*))dlsym(
      RTLD_NEXT, "pthread_cond_clockwait");
  real_sem_clockwait = (int (*)(sem_t*, clockid_t, const struct timespec*))dlsym(RTLD_NEXT, "sem_clockwait");
  const char* const path = getenv("WEIR_TEST_WALL_CLOCK");
  if (path == NULL) return;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  struct stat stat;
  if (fstat(file, &stat) == 0 && stat.st_size >= (off_t)sizeof(int64_t)) {
    void* const mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) shift = mapped;
  }
  close(file);
}

void weir_test_set_wall_clock(int64_t seconds) { own_shift = seconds; }

int clock_gettime(clockid_t clock, struct timespec* now) {
  if (real_clock_gettime == NULL) Begin();
  const int result = real_clock_gettime(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift;
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

// Nanoseconds of the shifted clock until `deadline`.
static int64_t Left(const struct timespec* deadline) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)(deadline->tv_sec - now.tv_sec) * 1000000000 + (deadline->tv_nsec - now.tv_nsec);
}

// A short while from now by `clock`, or less when less is left.
static struct timespec Soon(clockid_t clock, int64_t left) {
  struct timespec until;
  real_clock_gettime(clock, &until);
  until.tv_nsec += left < LOOK_NS ? left : LOOK_NS;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    ++until.tv_sec;
  }
  return until;
}

long syscall(long number, ...) {
  if (real_syscall == NULL) Begin();
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(arguments, long);
  va_end(arguments);
  const int command = (int)a[1] & FUTEX_CMD_MASK;
  const struct timespec* const deadline = (const struct timespec*)a[3];
  if (number != SYS_futex || command != FUTEX_WAIT_BITSET || ((int)a[1] & FUTEX_CLOCK_REALTIME) == 0 ||
      deadline == NULL) {
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  while (1) {
    const int64_t left = Left(deadline);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const struct timespec until = Soon(CLOCK_MONOTONIC, left);
    const long result = real_syscall(SYS_futex, a[0], a[1] & ~(long)FUTEX_CLOCK_REALTIME, a[2], &until, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  if (clock != CLOCK_REALTIME) return real_clockwait(condition, mutex, clock, deadline);
  while (1) {
    const int64_t left = Left(deadline);
    const struct timespec until = Soon(CLOCK_MONOTONIC, left < 0 ? 0 : left);
    const int result = real_clockwait(condition, mutex, CLOCK_MONOTONIC, &until);
    if (result != ETIMEDOUT || Left(deadline) <= 0) return result;
  }
}

// Assumes a condition of the default clock; no tested code makes another.
int pthread_cond_timedwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict deadline) {
  return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, deadline);
}

int sem_clockwait(sem_t* restrict semaphore, clockid_t clock, const struct timespec* restrict deadline) {
  if (clock != CLOCK_REALTIME) return real_sem_clockwait(semaphore, clock, deadline);
  while (1) {
    const int64_t left = Left(deadline);
    const struct timespec until = Soon(CLOCK_MONOTONIC, left < 0 ? 0 : left);
    if (real_sem_clockwait(semaphore, CLOCK_MONOTONIC, &until) == 0) return 0;
    if (errno != ETIMEDOUT || Left(deadline) <= 0) return -1;
  }
}

int sem_timedwait(sem_t* restrict semaphore, const struct timespec* restrict deadline) {
  return sem_clockwait(semaphore, CLOCK_REALTIME, deadline);
}
