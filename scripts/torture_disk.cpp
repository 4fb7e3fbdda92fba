// A layer between a program and its disk, loaded by LD_PRELOAD; scripts/torture.py compiles it.
//
// It counts the file operations below one directory, in all processes that share a control block,
// and at the N-th kills the process, lets the disk be full, or writes a journal of everything, from
// which the state of the disk after a power loss is made. All real work is done by system calls.

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

enum Action { NOTHING, KILL, FAIL, RECORD };

struct Control {  // as the Python side packs it: "<qqqqq1024s1024s"
    int64_t count;   // operations so far
    int64_t at;      // the operation at which something happens
    int64_t action;
    int64_t error;   // the errno of FAIL
    int64_t hits;    // how often something happened
    char root[1024];
    char journal[1024];
};

Control *control = nullptr;
std::mutex writing;

std::string path_of(int fd) {
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof target);
    return size > 0 ? std::string(target, size) : std::string();
}

std::string absolute(int directory, const char *path) {
    if (path[0] == '/') return path;
    std::string base;
    if (directory == AT_FDCWD) {
        char here[4096];
        if (syscall(SYS_getcwd, here, sizeof here) > 0) base = here;
    } else {
        base = path_of(directory);
    }
    return base + "/" + path;
}

bool ours(const std::string &path) {
    if (control == nullptr || control->action == NOTHING) return false;
    size_t size = strlen(control->root);
    return path.compare(0, size, control->root) == 0 && (path[size] == '/' || path[size] == 0);
}

int64_t inode_of(const std::string &path) {
    struct stat facts;
    if (syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &facts, AT_SYMLINK_NOFOLLOW)) return 0;
    return static_cast<int64_t>(facts.st_ino);
}

int64_t inode_of(int fd) {
    struct stat facts;
    return syscall(SYS_fstat, fd, &facts) ? 0 : static_cast<int64_t>(facts.st_ino);
}

std::string parent_of(const std::string &path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string &path) { return path.substr(path.rfind('/') + 1); }

// One record: kind, three numbers, a first and a second text with their lengths.
void record(char kind, int64_t a, int64_t b, int64_t c, const void *one, size_t first,
            const void *two = "", size_t second = 0) {
    if (control->action != RECORD) return;
    std::lock_guard<std::mutex> guard(writing);
    int saved = errno;
    int64_t head[6] = {kind, a, b, c, static_cast<int64_t>(first), static_cast<int64_t>(second)};
    struct iovec parts[3] = {{head, sizeof head}, {const_cast<void *>(one), first},
                             {const_cast<void *>(two), second}};
    int journal = syscall(SYS_openat, AT_FDCWD, control->journal,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal >= 0) {
        syscall(SYS_writev, journal, parts, 3);
        syscall(SYS_close, journal);
    }
    errno = saved;
}

// Counts an operation. Returns true if it has to fail; kills the process if that is the action.
// A full disk stays full: every later write fails as well, but what is `momentary` fails once.
bool fails(bool can_fail, bool momentary = false) {
    if (control->action == FAIL && !can_fail) return false;
    int64_t number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (control->action == KILL && number == control->at) {
        __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    bool due = momentary ? number == control->at : number >= control->at;
    if (control->action != FAIL || !due) return false;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    errno = static_cast<int>(control->error);
    return true;
}

bool about_to_kill() {
    return control->action == KILL && control->count + 1 == control->at;
}

int opened(int directory, const char *name, int flags, mode_t mode) {
    std::string path = absolute(directory, name);
    bool writes = (flags & (O_CREAT | O_TRUNC)) != 0;
    if (!writes || !ours(path)) return syscall(SYS_openat, directory, name, flags, mode);
    bool creates = inode_of(path) == 0;
    if (fails(creates)) return -1;
    int fd = syscall(SYS_openat, directory, name, flags, mode);
    if (fd >= 0 && creates) {
        std::string last = name_of(path);
        record('C', inode_of(parent_of(path)), inode_of(fd), 0, last.data(), last.size());
    } else if (fd >= 0 && (flags & O_TRUNC)) {
        record('T', inode_of(fd), 0, 0, "", 0);
    }
    return fd;
}

ssize_t wrote(int fd, const void *data, size_t size, int64_t offset) {
    std::string path = control == nullptr ? std::string() : path_of(fd);
    if (!ours(path)) {
        return offset < 0 ? syscall(SYS_write, fd, data, size)
                          : syscall(SYS_pwrite64, fd, data, size, offset);
    }
    if (about_to_kill() && offset < 0 && size > 1) syscall(SYS_write, fd, data, size / 2);
    if (fails(true)) return -1;
    int64_t place = offset;
    if (offset < 0) {
        bool appends = (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) != 0;
        place = syscall(SYS_lseek, fd, 0, appends ? SEEK_END : SEEK_CUR);
    }
    ssize_t done = offset < 0 ? syscall(SYS_write, fd, data, size)
                              : syscall(SYS_pwrite64, fd, data, size, offset);
    if (done > 0) record('W', inode_of(fd), place, 0, data, done);
    return done;
}

int synced(int fd, long call) {
    if (control == nullptr || !ours(path_of(fd))) return syscall(call, fd);
    if (fails(true, true)) return -1;
    int result = syscall(call, fd);
    if (result == 0) record('S', inode_of(fd), 0, 0, "", 0);
    return result;
}

int renamed(int from, const char *old, int to, const char *fresh, unsigned flags) {
    std::string first = absolute(from, old), second = absolute(to, fresh);
    if (!ours(first) && !ours(second)) return syscall(SYS_renameat2, from, old, to, fresh, flags);
    if (fails(false)) return -1;
    int result = syscall(SYS_renameat2, from, old, to, fresh, flags);
    if (result == 0) {
        std::string one = name_of(first), two = name_of(second);
        record('R', inode_of(parent_of(first)), inode_of(parent_of(second)), flags, one.data(),
               one.size(), two.data(), two.size());
    }
    return result;
}

int removed(int directory, const char *name, int flags) {
    std::string path = absolute(directory, name);
    if (!ours(path)) return syscall(SYS_unlinkat, directory, name, flags);
    if (fails(false)) return -1;
    int result = syscall(SYS_unlinkat, directory, name, flags);
    std::string last = name_of(path);
    if (result == 0) record('U', inode_of(parent_of(path)), 0, 0, last.data(), last.size());
    return result;
}

int made(int directory, const char *name, mode_t mode) {
    std::string path = absolute(directory, name);
    if (!ours(path)) return syscall(SYS_mkdirat, directory, name, mode);
    if (fails(inode_of(path) == 0)) return -1;
    int result = syscall(SYS_mkdirat, directory, name, mode);
    std::string last = name_of(path);
    if (result == 0) {
        record('M', inode_of(parent_of(path)), inode_of(path), 0, last.data(), last.size());
    }
    return result;
}

int truncated(int fd, int64_t size) {
    if (control == nullptr || !ours(path_of(fd))) return syscall(SYS_ftruncate, fd, size);
    if (fails(false)) return -1;
    int result = syscall(SYS_ftruncate, fd, size);
    if (result == 0) record('T', inode_of(fd), size, 0, "", 0);
    return result;
}

int linked(int from, const char *old, int to, const char *fresh, int flags) {
    std::string path = absolute(to, fresh);
    if (!ours(path)) return syscall(SYS_linkat, from, old, to, fresh, flags);
    if (fails(true)) return -1;
    int result = syscall(SYS_linkat, from, old, to, fresh, flags);
    std::string last = name_of(path);
    if (result == 0) {
        record('L', inode_of(parent_of(path)), inode_of(path), 0, last.data(), last.size());
    }
    return result;
}

int symlinked(const char *target, int directory, const char *name) {
    std::string path = absolute(directory, name);
    if (!ours(path)) return syscall(SYS_symlinkat, target, directory, name);
    if (fails(true)) return -1;
    int result = syscall(SYS_symlinkat, target, directory, name);
    std::string last = name_of(path);
    if (result == 0) {
        record('Y', inode_of(parent_of(path)), 0, 0, last.data(), last.size(), target,
               strlen(target));
    }
    return result;
}

}  // namespace

extern "C" {

int torture_arm(const char *file) {
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    void *memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (memory == MAP_FAILED) return -1;
    control = static_cast<Control *>(memory);
    return 0;
}

__attribute__((constructor)) static void begin() {
    const char *file = getenv("TORTURE_CONTROL");
    if (file != nullptr) torture_arm(file);
}

#define MODE(flags)                         \
    mode_t mode = 0;                        \
    if ((flags) & (O_CREAT | O_TMPFILE)) {  \
        va_list rest;                       \
        va_start(rest, flags);              \
        mode = va_arg(rest, mode_t);        \
        va_end(rest);                       \
    }

int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

ssize_t write(int fd, const void *data, size_t size) { return wrote(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return wrote(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return wrote(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (control == nullptr || !ours(path_of(fd))) return syscall(SYS_writev, fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = wrote(fd, parts[i].iov_base, parts[i].iov_len, -1);
        if (done < 0) return total ? total : done;
        total += done;
    }
    return total;
}

// Copies inside of the kernel are refused, so that the caller copies by write.
ssize_t sendfile(int out, int in, off_t *at, size_t size) {
    if (control == nullptr || !ours(path_of(out))) return syscall(SYS_sendfile, out, in, at, size);
    errno = EINVAL;
    return -1;
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) { return sendfile(out, in, at, size); }

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated(fd, size); }

int close(int fd) {
    if (control == nullptr || control->action != FAIL) return syscall(SYS_close, fd);
    bool writes = (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    bool failing = writes && ours(path_of(fd)) && fails(true, true);
    int number = errno, result = syscall(SYS_close, fd);
    if (!failing) return result;
    errno = number;
    return -1;
}

int rename(const char *old, const char *fresh) { return renamed(AT_FDCWD, old, AT_FDCWD, fresh, 0); }
int renameat(int a, const char *old, int b, const char *fresh) { return renamed(a, old, b, fresh, 0); }
int renameat2(int a, const char *old, int b, const char *fresh, unsigned flags) { return renamed(a, old, b, fresh, flags); }
int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int at, const char *name, int flags) { return removed(at, name, flags); }
int rmdir(const char *name) { return removed(AT_FDCWD, name, AT_REMOVEDIR); }
int mkdir(const char *name, mode_t mode) { return made(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return made(at, name, mode); }
int link(const char *old, const char *fresh) { return linked(AT_FDCWD, old, AT_FDCWD, fresh, 0); }
int linkat(int a, const char *old, int b, const char *fresh, int flags) { return linked(a, old, b, fresh, flags); }
int symlink(const char *target, const char *name) { return symlinked(target, AT_FDCWD, name); }
int symlinkat(const char *target, int at, const char *name) { return symlinked(target, at, name); }

}  // extern "C"
