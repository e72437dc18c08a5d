// Makes the n-th call of one kind fail: for tests, loaded with LD_PRELOAD. Calls on files count if the file is in one folder,
// allocations if they are large. Nothing counts before `faults_arm`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE, FSYNC, RENAME, OPEN, UNLINK, ALLOCATE };
enum { LARGE = 1 << 18 };  // bytes from which an allocation counts

static int armed_kind = -1, armed_code, armed_for_good;
static long armed_number;
static long* counter;
static char folder[4096];

// The n-th call of `kind` fails with `code`, and all later ones too if `for_good`. `count` gets the number of calls.
void faults_arm(int kind, long number, int code, int for_good, const char* inside, long* count) {
  snprintf(folder, sizeof folder, "%s", inside);
  armed_number = number, armed_code = code, armed_for_good = for_good, counter = count;
  __atomic_store_n(&armed_kind, kind, __ATOMIC_SEQ_CST);
}

static int counts(enum kind kind) {
  if (armed_kind != (int)kind) return 0;
  const long number = __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
  if (!armed_number || number < armed_number || (number > armed_number && !armed_for_good)) return 0;
  errno = armed_code;
  return 1;
}

static int is_inside(const char* path) { return !strncmp(path, folder, strlen(folder)); }

static int fails_at(enum kind kind, int directory, const char* path) {
  if (armed_kind != (int)kind || !path) return 0;
  char link[64], base[4096];
  if (path[0] != '/') {
    snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
    const ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0) return 0;
    base[size] = 0;
    path = base;
  }
  return is_inside(path) && counts(kind);
}

static int fails_on(enum kind kind, int descriptor) {
  char link[64], path[4096];
  if (armed_kind != (int)kind) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return is_inside(path) && counts(kind);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void* data, size_t size) {
  return fails_on(WRITE, file) ? -1 : REAL(write)(file, data, size);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t at) {
  return fails_on(WRITE, file) ? -1 : REAL(pwrite)(file, data, size, at);
}
ssize_t pwrite64(int file, const void* data, size_t size, off64_t at) {
  return fails_on(WRITE, file) ? -1 : REAL(pwrite64)(file, data, size, at);
}
ssize_t writev(int file, const struct iovec* parts, int count) {
  return fails_on(WRITE, file) ? -1 : REAL(writev)(file, parts, count);
}
int fsync(int file) { return fails_on(FSYNC, file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fails_on(FSYNC, file) ? -1 : REAL(fdatasync)(file); }
int rename(const char* from, const char* to) { return fails_at(RENAME, AT_FDCWD, to) ? -1 : REAL(rename)(from, to); }
int renameat(int a, const char* from, int b, const char* to) {
  return fails_at(RENAME, b, to) ? -1 : REAL(renameat)(a, from, b, to);
}
int unlink(const char* path) { return fails_at(UNLINK, AT_FDCWD, path) ? -1 : REAL(unlink)(path); }
int unlinkat(int directory, const char* path, int flags) {
  return fails_at(UNLINK, directory, path) ? -1 : REAL(unlinkat)(directory, path, flags);
}

#define MODE                           \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                      \
    va_start(rest, flags);             \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }
#define TO_WRITE ((flags & O_ACCMODE) != O_RDONLY)

int open(const char* path, int flags, ...) {
  MODE return TO_WRITE && fails_at(OPEN, AT_FDCWD, path) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE return TO_WRITE && fails_at(OPEN, AT_FDCWD, path) ? -1 : REAL(open64)(path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  MODE return TO_WRITE && fails_at(OPEN, directory, path) ? -1 : REAL(openat)(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  MODE return TO_WRITE && fails_at(OPEN, directory, path) ? -1 : REAL(openat64)(directory, path, flags, mode);
}

// glibc's own names: dlsym itself allocates
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) { return size >= LARGE && counts(ALLOCATE) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return count * size >= LARGE && counts(ALLOCATE) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) { return size >= LARGE && counts(ALLOCATE) ? NULL : __libc_realloc(old, size); }
void* aligned_alloc(size_t alignment, size_t size) {
  return size >= LARGE && counts(ALLOCATE) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void** to, size_t alignment, size_t size) {
  if (size >= LARGE && counts(ALLOCATE)) return ENOMEM;
  *to = __libc_memalign(alignment, size);
  return *to ? 0 : ENOMEM;
}
