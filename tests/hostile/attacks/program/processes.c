/* SPDX-License-Identifier: BSD-3-Clause
 * Everything that /proc offers of other processes: directories, open files, memory, variables, namespaces, programs.
 */
#include "attack.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t first; /* the attacking program itself, and its parent: not others */

static void look_at_directory(const char *attack, const char *path)
{
    int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    report_reach(attack, path, directory);
    close(directory);
}

/* What was handed to this very program is no secret of another process that has it too. */
static bool is_ours(const struct stat *status, int except)
{
    struct stat own;
    for (int file = 3; file < 256; file++)
        if (file != except && !fstat(file, &own) && own.st_dev == status->st_dev && own.st_ino == status->st_ino)
            return true;
    return false;
}

static void look_at_files(const char *attack, const char *folder)
{
    DIR *files = opendir(folder);
    struct dirent *entry;
    char path[600];
    struct stat own, status;
    fstat(1, &own); /* where our own reports go, which name secrets */
    while (files && (entry = readdir(files))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &status) || is_ours(&status, -1))
            continue;
        if (S_ISDIR(status.st_mode))
            look_at_directory(attack, path);
        else if (S_ISREG(status.st_mode) && status.st_ino != own.st_ino)
            report_file(attack, path, AT_FDCWD, path);
    }
    if (files)
        closedir(files);
}

/* Only kedge's interpreter, by its number: a hole must not harm the programs of whoever runs this. */
static void change_program(const char *path)
{
    struct stat status;
    if (!given("interpreter") || stat(path, &status) || status.st_ino != strtoul(given("interpreter"), NULL, 10))
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        change_interpreter(file, 1);
    close(file);
}

/* Memory that holds the caller's variables: the stack of the process, without asking for its environment. */
static void look_at_memory(const char *attack, const char *process)
{
    char path[300], line[512];
    static char piece[1 << 20];
    snprintf(path, sizeof path, "%s/maps", process);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof path, "%s/mem", process);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    while (maps && memory >= 0 && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (!strstr(line, "[stack]") || sscanf(line, "%lx-%lx", &begin, &end) != 2)
            continue;
        size_t length = end - begin < sizeof piece ? end - begin : sizeof piece;
        ssize_t got = pread(memory, piece, length, end - length);
        if (got > 0)
            report_canary(attack, path, piece, got);
    }
    if (maps)
        fclose(maps);
    close(memory);
}

/* Descriptors taken out of a process, without its /proc. */
static void take_files(const char *attack, pid_t pid)
{
    int process = syscall(SYS_pidfd_open, pid, 0);
    for (int file = 0; process >= 0 && file < 32; file++) {
        struct stat status;
        int taken = syscall(SYS_pidfd_getfd, process, file, 0);
        if (taken >= 0 && !fstat(taken, &status) && S_ISDIR(status.st_mode) && !is_ours(&status, taken))
            report_reach(attack, "pidfd_getfd", taken);
        close(taken);
    }
    close(process);
}

/* The user namespace above ours, and what may be entered from there. */
void attack_parent_namespaces(void)
{
    int file = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    for (int depth = 0; file >= 0 && depth < 4; depth++) {
        file = ioctl(file, NS_GET_PARENT);
        if (file >= 0 && !setns(file, CLONE_NEWUSER))
            report("process namespaces", "NS_GET_PARENT", CANARY "entered");
    }
}

static void enter_namespaces(const char *attack, const char *process)
{
    static const struct { const char *name; int kind; } kinds[] = {
        {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID}};
    pid_t child = fork();
    if (child) {
        waitpid(child, NULL, 0);
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/ns/%s", process, kinds[i].name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0 && !setns(file, kinds[i].kind) && kinds[i].kind == CLONE_NEWNS)
            look_at_directory(attack, "/");
    }
    _exit(0);
}

static const char *join(const char *folder, const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void look_at(const char *prefix, const char *process)
{
    char attack[80];
#define NAMED(name) (snprintf(attack, sizeof attack, "%s%s", prefix, name), attack)
    look_at_directory(NAMED("cwd"), join(process, "cwd"));
    look_at_directory(NAMED("root"), join(process, "root"));
    report_file(NAMED("environ"), process, AT_FDCWD, join(process, "environ"));
    report_file(NAMED("cmdline"), process, AT_FDCWD, join(process, "cmdline"));
    char folder[300];
    snprintf(folder, sizeof folder, "%s/fd", process);
    look_at_files(NAMED("fd"), folder);
    snprintf(folder, sizeof folder, "%s/map_files", process);
    look_at_files(NAMED("map_files"), folder);
    look_at_memory(NAMED("memory"), process);
    enter_namespaces(NAMED("namespaces"), process);
    change_program(join(process, "exe"));
#undef NAMED
}

void attack_process(const char *prefix, pid_t pid)
{
    char process[64], folder[64];
    snprintf(process, sizeof process, "/proc/%d", pid);
    look_at(prefix, process);
    snprintf(folder, sizeof folder, "%sfd", prefix);
    take_files(folder, pid);
    snprintf(folder, sizeof folder, "/proc/%d/task", pid);
    DIR *tasks = opendir(folder);
    struct dirent *entry;
    while (tasks && (entry = readdir(tasks)))
        if (atoi(entry->d_name) && atoi(entry->d_name) != pid) {
            char task[340];
            snprintf(task, sizeof task, "%s/%s", folder, entry->d_name);
            look_at(prefix, task);
        }
    if (tasks)
        closedir(tasks);
}

void attack_processes(void)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    first = getppid();
    while (processes && (entry = readdir(processes))) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && pid != getpid() && pid != first)
            attack_process("process ", pid);
    }
}

static volatile bool is_over = false;
static void end_watch(int number) { is_over = number != 0; }

/* A program that waits in a container for whoever comes in, and looks at them all the time, until SIGUSR1. */
void watch_newcomers(void)
{
    static bool is_known[1 << 22], is_seen[1 << 22];
    char number[32];
    int seen = 0;
    signal(SIGUSR1, end_watch);
    alarm(60);
    for (bool is_first = true; !is_over; is_first = false) {
        DIR *processes = opendir("/proc");
        struct dirent *entry;
        while (processes && (entry = readdir(processes))) {
            pid_t pid = atoi(entry->d_name);
            if (pid <= 0 || pid == getpid() || (is_known[pid] && pid != 1))
                continue;
            if (is_first) {
                is_known[pid] = true;
                continue;
            }
            seen += !is_seen[pid];
            is_seen[pid] = true;
            attack_process("newcomer ", pid);
        }
        if (processes)
            closedir(processes);
        if (is_first) {
            snprintf(number, sizeof number, "%d", getpid());
            report("ready", "process", number);
        }
    }
    snprintf(number, sizeof number, "%d", seen);
    report("seen", "newcomers", number);
}

/* The process whose number on the host is known: its memory, and what tracing gives. */
void attack_numbered_process(void)
{
    if (!given("victim"))
        return;
    pid_t pid = atoi(given("victim"));
    char text[128] = "";
    void *place = (void *)strtoul(given("address"), NULL, 0);
    struct iovec local = {text, sizeof text - 1}, remote = {place, sizeof text - 1};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got > 0)
        report_canary("process memory", "process_vm_readv", text, got);
    if (!ptrace(PTRACE_SEIZE, pid, 0, 0)) {
        report("process memory", "ptrace", CANARY "traced");
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
}

void attack_host_process(void)
{
    if (given("spared"))
        kill(atoi(given("spared")), SIGKILL); /* whether it is gone is seen from outside */
}
