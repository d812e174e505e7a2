/* SPDX-License-Identifier: BSD-3-Clause
 * What the kernel hands out without a process of anybody's: paths, descriptors, shared memory, sockets, keys, devices.
 */
#include "attack.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

static void read_path(const char *attack, const char *argument)
{
    const char *path = given(argument);
    if (path)
        report_file(attack, path, AT_FDCWD, path);
}

void attack_paths(void)
{
    char path[4200];
    read_path("home", "key");
    snprintf(path, sizeof path, "%s/.ssh/id_ed25519", getenv("HOME") ? getenv("HOME") : "/root");
    report_file("home", path, AT_FDCWD, path); /* fake root has it elsewhere */
    read_path("project", "project");
    read_path("temporary", "temporary");
    read_path("shared memory file", "shm");
    read_path("outside", "outside");
}

void attack_environment(void)
{
    for (char **each = environ; *each; each++)
        report_canary("environment", "getenv", *each, strlen(*each));
}

/* Descriptors that wait in a socket's queue belong to whoever has the socket. */
static void receive_files(const char *how, int file)
{
    char byte, space[CMSG_SPACE(8 * sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(file, &message, MSG_DONTWAIT) < 0)
        return;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each))
        for (size_t i = 0; i < (each->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
            report_reach("queued descriptor", how, ((int *)CMSG_DATA(each))[i]);
}

void attack_descriptors(void)
{
    char how[40];
    for (int file = 3; file < 256; file++) {
        struct stat status;
        if (fstat(file, &status))
            continue;
        snprintf(how, sizeof how, "descriptor %d", file);
        if (S_ISDIR(status.st_mode))
            report_reach("descriptor", how, file);
        if (S_ISSOCK(status.st_mode))
            receive_files(how, file);
    }
}

void attack_memory_sharing(void)
{
    if (given("segment")) {
        const char *text = shmat(atoi(given("segment")), NULL, SHM_RDONLY);
        if (text != (void *)-1)
            report_canary("segment", "shmat", text, 128);
    }
    if (given("queue")) {
        char text[256];
        mqd_t queue = mq_open(given("queue"), O_RDONLY | O_NONBLOCK);
        ssize_t length = queue == (mqd_t)-1 ? -1 : mq_receive(queue, text, sizeof text, NULL);
        if (length > 0)
            report_canary("queue", "mq_receive", text, length);
    }
}

static void ask(const char *attack, const char *how, int family, const void *address, socklen_t length)
{
    char text[256];
    int connection = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && !connect(connection, address, length)) {
        ssize_t got = read(connection, text, sizeof text);
        if (got > 0)
            report_canary(attack, how, text, got);
    }
    close(connection);
}

void attack_sockets(void)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (given("abstract")) {
        size_t length = strlen(given("abstract"));
        memcpy(local.sun_path + 1, given("abstract"), length);
        ask("abstract socket", "connect", AF_UNIX, &local, offsetof(struct sockaddr_un, sun_path) + 1 + length);
    }
    if (given("socket")) {
        memset(local.sun_path, 0, sizeof local.sun_path);
        strncpy(local.sun_path, given("socket"), sizeof local.sun_path - 1);
        ask("socket", "connect", AF_UNIX, &local, sizeof local);
    }
    if (given("port")) {
        struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons(atoi(given("port")))};
        loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ask("loopback", "connect", AF_INET, &loopback, sizeof loopback);
    }
}

static void read_key(const char *attack, const char *how, long key)
{
    char text[256];
    long length = key > 0 ? syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text) : -1;
    if (length > 0)
        report_canary(attack, how, text, (size_t)length < sizeof text ? (size_t)length : sizeof text);
}

#ifdef __x86_64__
/* The same by the system call of 32-bit programs, which have other numbers and low addresses. */
static void read_key_int80(const char *attack, long key)
{
    static char text[256];
    long length;
    __asm__ volatile("int $0x80"
                     : "=a"(length)
                     : "0"(288L), "b"((long)KEYCTL_READ), "c"(key), "d"(text), "S"((long)sizeof text)
                     : "memory");
    if (length > 0 && (size_t)length < sizeof text)
        report_canary(attack, "int80", text, length);
}
#endif

static long search(long keyring, const char *name)
{
    return syscall(SYS_keyctl, KEYCTL_SEARCH, keyring, "user", name, 0);
}

void attack_keys(void)
{
    report_file("names of keys", "/proc/keys", AT_FDCWD, "/proc/keys");
    if (!given("session-key"))
        return;
    long session_key = atol(given("session-key")), user_key = atol(given("user-key")), ring = atol(given("user-ring"));
    read_key("session key", "search", search(KEY_SPEC_SESSION_KEYRING, CANARY "name-session"));
    read_key("session key", "number", session_key);
    read_key("user key", "search", search(KEY_SPEC_USER_KEYRING, CANARY "name-user"));
    read_key("user key", "user session", search(KEY_SPEC_USER_SESSION_KEYRING, CANARY "name-user"));
    read_key("user key", "number", user_key);
    /* a keyring that belongs to the same user can be linked by its number, and what is linked is possessed */
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    if (!syscall(SYS_keyctl, KEYCTL_LINK, ring, KEY_SPEC_SESSION_KEYRING))
        read_key("user key", "linked", search(KEY_SPEC_SESSION_KEYRING, CANARY "name-user"));
    if (!syscall(SYS_keyctl, KEYCTL_LINK, session_key, KEY_SPEC_SESSION_KEYRING))
        read_key("session key", "linked", session_key);
    if (!syscall(SYS_keyctl, KEYCTL_LINK, atol(given("session-ring")), KEY_SPEC_SESSION_KEYRING))
        read_key("session key", "keyring linked", search(KEY_SPEC_SESSION_KEYRING, CANARY "name-session"));
    read_key("session key", "request_key", syscall(SYS_request_key, "user", CANARY "name-session", NULL, 0));
    read_key("user key", "request_key", syscall(SYS_request_key, "user", CANARY "name-user", NULL, 0));
#ifdef __x86_64__
    read_key_int80("session key", session_key); /* the last: a kernel without it ends us */
    read_key_int80("user key", user_key);
#endif
}

static void read_device(const char *path)
{
    char byte;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && read(file, &byte, 1) == 1)
        report("devices", path, "one byte of it");
    close(file);
}

void attack_devices(void)
{
    static const char *const memory[] = {"/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore"};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        read_device(memory[i]);
    DIR *devices = opendir("/dev");
    struct dirent *entry;
    char path[300];
    while (devices && (entry = readdir(devices)))
        if (entry->d_type == DT_BLK) {
            snprintf(path, sizeof path, "/dev/%s", entry->d_name);
            read_device(path);
        }
    unsigned long number = given("disk") ? strtoul(given("disk"), NULL, 0) : 0;
    const char *const places[] = {"/tmp/disk", "/dev/disk-of-ours", "/disk", "/dev/shm/disk-of-ours"};
    for (size_t i = 0; number && i < sizeof places / sizeof *places; i++)
        if (!mknod(places[i], S_IFBLK | 0666, number)) {
            read_device(places[i]);
            unlink(places[i]);
        }
}

/* Settings of the whole host: whoever may open them for writing may let the kernel start a program outside. */
void attack_settings(void)
{
    static const char *const paths[] = {
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/drop_caches"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int file = open(paths[i], O_WRONLY | O_CLOEXEC);
        if (file >= 0)
            report("settings", paths[i], "opened for writing");
        close(file);
    }
}
