/* SPDX-License-Identifier: BSD-3-Clause
 * Typing into the caller's terminal: as the system call is meant, and past filters that look at one form of it only.
 */
#include "attack.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif
#define X32 0x40000000
#define X32_IOCTL 514

static char letter[8]; /* static: 32-bit system calls know low addresses only */
static const char *way;

static long type_plain(int file) { return syscall(SYS_ioctl, file, (long)TIOCSTI, letter); }
static long type_high(int file) { return syscall(SYS_ioctl, file, (long)TIOCSTI | 1L << 32, letter); }
#ifdef __x86_64__
static long type_x32(int file) { return syscall(X32 + X32_IOCTL, file, (long)TIOCSTI, letter); }
static long type_int80(int file)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(54L), "b"((long)file), "c"((long)TIOCSTI), "d"(letter) : "memory");
    return result;
}
#endif

static void type(int file, long (*call)(int))
{
    char text[80];
    snprintf(text, sizeof text, CANARY "typed-%s ", way);
    for (const char *place = text; *place; place++) {
        letter[0] = *place;
        errno = 0;
        long result = call(file);
        if (result) {
            report("typing refused", way, strerror(errno ? errno : (int)-result));
            return;
        }
    }
}

static void type_everywhere(void)
{
    static const struct { const char *name; long (*call)(int); } ways[] = {
        {"plain", type_plain},
        {"high-bits", type_high},
#ifdef __x86_64__
        {"x32", type_x32},
        {"int80", type_int80}, /* the last: a kernel without it ends us */
#endif
    };
    int terminal = open("/dev/tty", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = ways[i].name;
        type(0, ways[i].call);
        if (terminal >= 0)
            type(terminal, ways[i].call);
    }
}

/* Pastes on a console; elsewhere the terminal says that it is none. Only a filter says EPERM. */
static void paste(void)
{
    char command = 3;
    errno = 0;
    syscall(SYS_ioctl, 0, (long)TIOCLINUX, &command);
    if (errno != EPERM)
        report("paste", "TIOCLINUX", strerror(errno));
    errno = 0;
    syscall(SYS_ioctl, 0, (long)TIOCLINUX | 1L << 32, &command);
    if (errno != EPERM)
        report("paste", "TIOCLINUX with high bits", strerror(errno));
}

void attack_terminal(void)
{
    paste();
    type_everywhere();
}

void attack_other_terminal(void)
{
    const char *path = given("terminal");
    if (path)
        report_file("terminal", path, AT_FDCWD, path);
}
