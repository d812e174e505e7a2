/* SPDX-License-Identifier: BSD-3-Clause
 * The program that attacks from inside of a container. It is static, so that it runs in any image, and prints one line
 * of JSON for each secret that it finds: {"attack": NAME, "how": WAY, "found": TEXT}. Secrets begin with CANARY.
 */
#pragma once
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifndef CANARY /* the tests give each run its own: runs beside each other see the same processes */
#define CANARY "canary-"
#endif

/* report.c */
const char *given(const char *name); /* the value of an argument NAME=VALUE, or NULL */
void remember_arguments(int count, char **words);
void report(const char *attack, const char *how, const char *found);
bool report_canary(const char *attack, const char *how, const char *text, size_t length);
bool report_file(const char *attack, const char *how, int directory, const char *path);
void report_reach(const char *attack, const char *how, int directory); /* the secrets, looked for from a directory */
void try_apart(void (*attempt)(void)); /* in a child with a deadline: what one attack breaks does not stop the next */
extern bool is_nested;                 /* in a user namespace of its own */

/* processes.c */
void attack_processes(void);
void attack_process(const char *attack, pid_t pid);
void watch_newcomers(void);
void attack_numbered_process(void);
void attack_parent_namespaces(void);
void attack_host_process(void);

/* kernel.c */
void attack_paths(void);
void attack_environment(void);
void attack_descriptors(void);
void attack_memory_sharing(void);
void attack_sockets(void);
void attack_keys(void);
void attack_devices(void);
void attack_settings(void);

/* terminal.c */
void attack_terminal(void);
void attack_other_terminal(void);

/* mounts.c */
void attack_sys(void);
void attack_readonly_bind(void);
void attack_image(void);
void attack_node(void);
void attack_covered(void);
void attack_chroot(void);
void attack_bind_of_root(void);
void attack_handles(void);
void attack_propagation(void);

/* outside.c */
int play_caller(const char *arguments, const char *typed);
int play_victim(const char *name);
int play_spared(void);
void change_interpreter(int file, int patience);
