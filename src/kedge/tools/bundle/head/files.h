// SPDX-License-Identifier: BSD-3-Clause
// Files and directories: whose they are, reading, writing and removing them.

static int is_own_directory(const char *path, const char **reason) {
    struct status status;
    long result = CALL4(FSTATAT, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW);
    if (result < 0) *reason = NULL;
    else if ((status.mode & S_IFMT) != S_IFDIR) *reason = "it is a symlink or a file";
    else if (status.uid != (uint32_t)CALL(GETEUID, 0, 0, 0)) *reason = "it belongs to another user";
    else if (status.mode & OTHERS_WRITE) *reason = "others may write to it";
    else return 1;
    return 0;
}

// Why somebody other than root and the user could put another directory in the place of this one, or NULL: as
// kedge.image.node.node_cache looks at all directories above. Containers show root of the host as nobody.
static const char *find_risk_above(const char *path) {
    char above[LONGEST];
    struct status status;
    uint32_t own = (uint32_t)CALL(GETEUID, 0, 0, 0);
    size_t cut = length(path);
    if (!join(above, sizeof above, path, NULL)) return "its name is too long";
    while (cut > 1) {
        while (above[cut - 1] != '/') cut--;
        above[cut > 1 ? --cut : cut] = 0;
        if (CALL4(FSTATAT, AT_FDCWD, above, &status, 0) < 0) return "a directory above it cannot be looked at";
        if (status.uid && status.uid != own && status.uid != NOBODY)
            return "another user could replace it: a directory above it is theirs";
        if ((status.mode & (WORLD_WRITES | S_ISVTX)) == WORLD_WRITES)
            return "anybody could replace it: a directory above it is world-writable and not sticky";
        // Root's own group has root alone, and many systems give each user a group with the user's number.
        if ((status.mode & (GROUP_WRITES | S_ISVTX)) == GROUP_WRITES && status.gid && (status.uid != own || status.gid != own))
            return "its group could replace it: a directory above it is group-writable and not sticky";
    }
    return NULL;
}

static int is_whole(int file, char *into, size_t count) {
    while (count) {
        long got = CALL(READ, file, into, count);
        if (got == -EINTR) continue;
        if (got <= 0) return 0;
        into += got;
        count -= (size_t)got;
    }
    return 1;
}

static long write_whole(int file, const char *from, size_t count) {
    while (count) {
        long done = CALL(WRITE, file, from, count);
        if (done == -EINTR) continue;
        if (done < 0) return done;
        from += done;
        count -= (size_t)done;
    }
    return 0;
}

// Remove a directory with all that is in it; no link is followed.
RARE static void remove_tree(int folder, const char *name) {
    char room[2048] __attribute__((aligned(8)));
    int inside = (int)CALL4(OPENAT, folder, name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (inside < 0) {
        CALL(UNLINKAT, folder, name, 0);
        return;
    }
    for (int rounds = 0; rounds < 1000; rounds++) { // again from the start, as entries go while they are listed
        long removed = 0, got;
        CALL(LSEEK, inside, 0, 0);
        while ((got = CALL(GETDENTS64, inside, room, sizeof room)) > 0)
            for (long at = 0; at < got; at += ((struct entry *)(room + at))->size) {
                const char *each = ((struct entry *)(room + at))->name;
                if (is_same(each, ".") || is_same(each, "..")) continue;
                removed++;
                if (CALL(UNLINKAT, inside, each, 0) < 0) remove_tree(inside, each);
            }
        if (!removed) break;
    }
    CALL(CLOSE, inside, 0, 0);
    CALL(UNLINKAT, folder, name, AT_REMOVEDIR);
}
