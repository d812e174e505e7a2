/* SPDX-License-Identifier: BSD-3-Clause
   One of many ranks of a launch without MPI: tells the others in a directory where its memory is, reads that of the next
   one by process_vm_readv, and waits until all have read. Prints its rank, its namespaces and what it read. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

static char word[32];

static void tell(const char *folder, const char *kind, int rank, const char *text)
{
    char path[512], draft[540];
    snprintf(path, sizeof path, "%s/%s-%d", folder, kind, rank);
    snprintf(draft, sizeof draft, "%s.new", path);
    FILE *file = fopen(draft, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) || rename(draft, path))
        exit(2);
}

static FILE *await(const char *folder, const char *kind, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s-%d", folder, kind, rank);
    for (int attempt = 0; attempt < 6000; attempt++, usleep(20000)) {
        FILE *file = fopen(path, "r");
        if (file)
            return file;
    }
    exit(3);
}

static const char *space(const char *kind, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    ssize_t length = readlink(path, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    return text;
}

int main(int count, char **words)
{
    int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE")), next = (rank + 1) % size, pid = 0;
    unsigned long address = 0;
    char text[64], copy[sizeof word] = "", mounts[64], users[64];
    if (count != 2)
        return 1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* where Yama asks for it */
    snprintf(word, sizeof word, "word of %d", rank);
    snprintf(text, sizeof text, "%d %lu\n", (int)getpid(), (unsigned long)word);
    tell(words[1], "here", rank, text);
    if (fscanf(await(words[1], "here", next), "%d %lu", &pid, &address) != 2)
        return 1;
    struct iovec here = {copy, sizeof copy}, there = {(void *)address, sizeof copy};
    ssize_t read = process_vm_readv(pid, &here, 1, &there, 1, 0);
    printf("%d %s %s %s\n", rank, space("mnt", mounts, sizeof mounts), space("user", users, sizeof users),
           read == sizeof copy ? copy : strerror(errno));
    tell(words[1], "done", rank, "");
    await(words[1], "done", (rank + size - 1) % size); /* who reads from us has done so */
    return 0;
}
