/* SPDX-License-Identifier: BSD-3-Clause
 * Gives files to others, changes modes and sets capabilities, by every call there is: lines of CALL PATH NUMBER NUMBER on its input.
 * Ends at the first call that fails, with its line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int do_call(const char *call, const char *path, unsigned first, unsigned second)
{
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 0x20}; /* revision 2, effective: cap_net_raw */
    int file, result;
    if (!strcmp(call, "setcap"))
        return setxattr(path, "security.capability", capability, sizeof capability, 0);
    if (!strcmp(call, "chmod"))
        return chmod(path, first);
    if (!strcmp(call, "chown"))
        return chown(path, first, second);
    if (!strcmp(call, "lchown"))
        return lchown(path, first, second);
    if (!strcmp(call, "fchownat")) { /* relative to a directory */
        file = open("/", O_RDONLY | O_DIRECTORY);
        result = fchownat(file, path + 1, first, second, AT_SYMLINK_NOFOLLOW);
    } else {
        file = open(path, O_RDONLY);
        if (!strcmp(call, "empty"))
            result = fchownat(file, "", first, second, AT_EMPTY_PATH);
        else
            result = fchown(file, first, second);
    }
    close(file);
    return result;
}

int main(void)
{
    char call[16], path[256];
    unsigned first, second;
    while (scanf("%15s %255s %u %u", call, path, &first, &second) == 4)
        if (do_call(call, path, first, second)) {
            printf("%s %s %u %u: %s\n", call, path, first, second, strerror(errno));
            return 1;
        }
    return 0;
}
