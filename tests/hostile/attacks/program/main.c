/* SPDX-License-Identifier: BSD-3-Clause
 * The attacks, one after the other: once as the container starts us, once more as root of a user namespace inside it.
 */
#include "attack.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*const attempts[])(void) = {
    attack_environment, attack_paths, attack_descriptors, attack_processes, attack_numbered_process,
    attack_parent_namespaces,
    attack_memory_sharing, attack_sockets, attack_keys, attack_devices, attack_settings, attack_other_terminal,
    attack_sys, attack_readonly_bind, attack_image, attack_node, attack_covered, attack_chroot, attack_bind_of_root, attack_handles};

static void attempt_all(void)
{
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        try_apart(attempts[i]);
}

static void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file >= 0 && write(file, text, strlen(text)) < 0)
        report("nested", path, "map refused");
    close(file);
}

static void attempt_nested(void)
{
    char map[64];
    uid_t user = getuid();
    gid_t group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return;
    is_nested = true;
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", user);
    write_text("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", group);
    write_text("/proc/self/gid_map", map);
    attempt_all();
}

int main(int count, char **words)
{
    const char *role = count > 1 ? words[1] : "";
    remember_arguments(count, words);
    if (!strcmp(role, "caller"))
        return play_caller(words[2], words[3]);
    if (!strcmp(role, "spared"))
        return play_spared();
    if (!strcmp(role, "victim"))
        return play_victim(words[2]);
    if (!strcmp(role, "watch")) {
        watch_newcomers();
    } else if (!strcmp(role, "program")) { /* the loader of an image has opened it for us */
        report("program", "the loader", "started");
        change_interpreter(atoi(words[2]), 20);
    } else {
        attempt_all();
        pid_t child = fork();
        if (child == 0) {
            attempt_nested();
            _exit(0);
        }
        waitpid(child, NULL, 0);
        try_apart(attack_terminal);
        try_apart(attack_host_process);
        try_apart(attack_propagation);
    }
    report("end", "", "");
    return 0;
}
