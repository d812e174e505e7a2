/* SPDX-License-Identifier: BSD-3-Clause
 * What was found goes out as lines of JSON; each attempt runs in a child of its own.
 */
#include "attack.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool is_nested = false;
static int argument_count;
static char **arguments;
static const char *const secrets[] = {"outside", "key", "project"};
#define SECRETS (sizeof secrets / sizeof *secrets)
static bool is_hidden[SECRETS]; /* what lies open needs no way around */

void remember_arguments(int count, char **words)
{
    argument_count = count;
    arguments = words;
    for (size_t i = 0; i < SECRETS; i++)
        is_hidden[i] = given(secrets[i]) && access(given(secrets[i]), R_OK);
}

const char *given(const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < argument_count; i++)
        if (!strncmp(arguments[i], name, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    return NULL;
}

static void print_text(FILE *file, const char *text)
{
    for (; *text; text++)
        fputc(*text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '?' : *text, file);
}

void report(const char *attack, const char *how, const char *found)
{
    char line[2048];
    FILE *file = fmemopen(line, sizeof line, "w");
    fprintf(file, "{\"attack\": \"%s\", \"how\": \"%s", attack, is_nested ? "nested: " : "");
    print_text(file, how);
    fputs("\", \"found\": \"", file);
    print_text(file, found);
    fputs("\"}\n", file);
    long length = ftell(file);
    fclose(file);
    if (write(1, line, length) != length)
        _exit(1);
}

bool report_canary(const char *attack, const char *how, const char *text, size_t length)
{
    bool is_found = false;
    const char *place = text;
    while ((place = memmem(place, length - (place - text), CANARY, strlen(CANARY)))) {
        char found[128] = "";
        size_t rest = length - (place - text);
        for (size_t i = 0; i < sizeof found - 1 && i < rest && (place[i] == '-' || (place[i] >= '0' && place[i] <= 'z')); i++)
            found[i] = place[i];
        report(attack, how, found);
        place += strlen(CANARY);
        is_found = true;
    }
    return is_found;
}

bool report_file(const char *attack, const char *how, int directory, const char *path)
{
    static char text[1 << 16];
    int file = openat(directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text);
    close(file);
    return length > 0 && report_canary(attack, how, text, length);
}

static void climb(const char *attack, const char *how, int directory, const char *path)
{
    char up[4200];
    for (int steps = 0; steps <= 8; steps++) {
        up[0] = 0;
        for (int i = 0; i < steps; i++)
            strcat(up, "../");
        strncat(up, path, 4000);
        if (report_file(attack, how, directory, up))
            return;
    }
}

void report_reach(const char *attack, const char *how, int directory)
{
    for (size_t i = 0; i < SECRETS; i++)
        if (is_hidden[i])
            climb(attack, how, directory, given(secrets[i]) + 1);
    if (is_hidden[1]) { /* where the home, or what it is in, is a mount of its own */
        climb(attack, how, directory, ".ssh/id_ed25519");
        climb(attack, how, directory, "home/.ssh/id_ed25519");
    }
}

void try_apart(void (*attempt)(void))
{
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        attempt();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}
