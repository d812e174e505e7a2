/* SPDX-License-Identifier: BSD-3-Clause
 * The system calls by which rpm, dnf, apk and conda (Python's tarfile) install files as root, one after the other. Prints
 * those that fail, and `done`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int failures;

static void expect(const char *what, long result)
{
    if (result == -1) {
        printf("%s: %s\n", what, strerror(errno));
        failures++;
    }
}
#define TRY(call) expect(#call, (long)(call))

static void install_as_rpm(void)
{
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 0x20}; /* revision 2, effective: cap_net_raw */
    struct timespec times[2] = {{1, 0}, {1, 0}};
    int folder = open("/opt", O_RDONLY | O_DIRECTORY);
    int file = openat(folder, "program;5f", O_CREAT | O_EXCL | O_WRONLY, 0600);
    TRY(write(file, "x", 1));
    TRY(fchown(file, 0, 12));
    TRY(fchmod(file, 06755));
    TRY(fchownat(file, "", 38, 39, AT_EMPTY_PATH));
    TRY(fsetxattr(file, "security.capability", capability, sizeof capability, 0));
    TRY(utimensat(folder, "program;5f", times, AT_SYMLINK_NOFOLLOW));
    TRY(fsync(file));
    TRY(renameat(folder, "program;5f", folder, "program"));
    TRY(symlinkat("program", folder, "link"));
    TRY(fchownat(folder, "link", 7, 7, AT_SYMLINK_NOFOLLOW));
    TRY(mkdirat(folder, "spool", 0700));
    TRY(lchown("/opt/spool", 8, 12));
    TRY(mknodat(folder, "null", S_IFCHR | 0666, makedev(1, 3)));
    TRY(mknodat(folder, "disk", S_IFBLK | 0660, makedev(8, 0)));
    TRY(mknodat(folder, "pipe", S_IFIFO | 0600, 0));
    TRY(close(file));
}

static void run_scriptlet(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    TRY(chroot("/"));
    TRY(chdir("/"));
    TRY(setgroups(0, NULL));
    TRY(setresgid(9, 9, 0)); /* with a way back, as a package manager has that runs more scriptlets */
    TRY(setresuid(9, 9, 0));
    TRY(setegid(0));
    TRY(seteuid(0));
    TRY(setregid(0, 0));
    TRY(setreuid(0, 0));
    TRY(setgid(0));
    TRY(setuid(0));
    TRY(setfsuid(9));
    TRY(setfsgid(9));
    TRY(syscall(SYS_capset, &header, data));
}

static void install_as_apk(void)
{
    int lock = open("/opt/lock", O_CREAT | O_RDWR, 0600);
    TRY(flock(lock, LOCK_EX));
    TRY(fchown(lock, 65534, 65534));
    TRY(chown("/opt/lock", 65534, (gid_t)-1));
    TRY(linkat(AT_FDCWD, "/opt/lock", AT_FDCWD, "/opt/hard", 0));
    TRY(chmod("/opt/hard", 04711));
    TRY(setxattr("/opt/lock", "user.note", "x", 1, 0));
    TRY(fdatasync(lock));
    TRY(syncfs(lock));
    sync();
}

int main(void)
{
    install_as_rpm();
    install_as_apk();
    pid_t child = fork();
    if (child == 0) {
        run_scriptlet();
        return failures != 0;
    }
    int status = 1;
    waitpid(child, &status, 0);
    puts("done");
    return failures || status;
}
