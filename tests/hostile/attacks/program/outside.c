/* SPDX-License-Identifier: BSD-3-Clause
 * The two who stand outside: the caller with keys and a terminal, and a process of the same user with a secret in memory.
 */
#include "attack.h"
#include <fcntl.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MOST_WORDS 100

static long add_key(const char *name, const char *text, long ring)
{
    return syscall(SYS_add_key, "user", name, text, strlen(text), ring);
}

/* The words of a command line, from a file: a secret among them is in no other process's command line. */
static char **read_words(const char *path)
{
    static char text[1 << 16], *words[MOST_WORDS + 1], numbers[4][40];
    int file = open(path, O_RDONLY | O_CLOEXEC), count = 0;
    ssize_t length = read(file, text, sizeof text - 1);
    static const char *const names[] = {"session-key", "user-key", "session-ring", "user-ring"};
    long keys[4];
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    keys[0] = add_key(CANARY "name-session", CANARY "session-key", KEY_SPEC_SESSION_KEYRING);
    keys[1] = add_key(CANARY "name-user", CANARY "user-key", KEY_SPEC_USER_KEYRING);
    keys[2] = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
    keys[3] = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0);
    for (char *word = text; word < text + length && count < MOST_WORDS - 4; word += strlen(word) + 1)
        words[count++] = word;
    for (int i = 0; i < 4; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%s=%ld", names[i], keys[i]);
        words[count++] = numbers[i];
    }
    close(file);
    return words;
}

int play_caller(const char *arguments, const char *typed)
{
    char text[4096];
    int status = 0;
    if (open("/dev/tty", O_RDONLY | O_CLOEXEC) < 0) { /* no terminal governs us yet */
        setsid();
        ioctl(0, TIOCSCTTY, 0);
    }
    char **words = read_words(arguments);
    pid_t child = fork();
    if (child == 0) {
        execvp(words[0], words);
        _exit(127);
    }
    waitpid(child, &status, 0);
    fcntl(0, F_SETFL, O_NONBLOCK);
    int file = open(typed, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    ssize_t length = read(0, text, sizeof text);
    if (length > 0 && write(file, text, length) != length)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One that others may try to end: it says that it is there, and ends by itself when its input does. */
int play_spared(void)
{
    char byte;
    puts("here");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

int play_victim(const char *name)
{
    static char text[128];
    struct mq_attr shape = {.mq_maxmsg = 8, .mq_msgsize = 128};
    snprintf(text, sizeof text, CANARY "memory");
    int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    strcpy(shmat(segment, NULL, 0), CANARY "segment");
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &shape);
    for (int i = 0; i < 8; i++)
        mq_send(queue, CANARY "queue", strlen(CANARY "queue"), 0);
    printf("%p %d\n", (void *)text, segment);
    fflush(stdout);
    while (read(0, text + 64, 1) > 0)
        ;
    shmctl(segment, IPC_RMID, NULL);
    mq_unlink(name);
    return 0;
}

/* Everything that one can do to a file of one's own through an open descriptor; the caller looks whether it took. */
void change_interpreter(int file, int patience)
{
    char path[64];
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (!fchmod(file, 0777) || !chmod(path, 0777))
        report("program", path, "mode");
    if (!fsetxattr(file, "user.attack", "1", 1, 0))
        report("program", path, "attribute");
    if (!futimens(file, times))
        report("program", path, "times");
    for (int i = 0; i < patience; i++) { /* as long as somebody runs it, it is busy */
        int writing = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (writing >= 0) {
            if (write(writing, "\n", 1) == 1)
                report("program", path, "content");
            close(writing);
            break;
        }
        usleep(10000);
    }
}
