// SPDX-License-Identifier: BSD-3-Clause
// Places for the copy: whether one may be used, and whose turn it is to unpack there.

// Make a directory and those above it that are missing.
RARE static void make_directories(const char *path) {
    char part[LONGEST];
    for (size_t at = 1; path[at] && at < sizeof part - 1; at++) {
        if (path[at] != '/') continue;
        memcpy(part, path, at);
        part[at] = 0;
        CALL(MKDIRAT, AT_FDCWD, part, 0700);
    }
    CALL(MKDIRAT, AT_FDCWD, path, 0700);
}

// Set folder_path for a user's directory; false where it is not the user's alone, or missing and not to be made.
static int enter_place(const char *own, int is_made) {
    char path[LONGEST];
    const char *reason;
    if (is_made) make_directories(own);
    if (!is_own_directory(own, &reason)) {
        if (reason || is_made) give_reason(own, reason ? reason : "it cannot be created");
        return 0;
    }
    reason = find_risk_above(own);
    if (reason) {
        give_reason(own, reason);
        return 0;
    }
    if (!join(path, sizeof path, own, "/bundle", NULL)) return 0;
    if (is_made) CALL(MKDIRAT, AT_FDCWD, path, 0700);
    if (!is_own_directory(path, &reason)) {
        if (reason || is_made) give_reason(path, reason ? reason : "it cannot be created");
        return 0;
    }
    return join(folder_path, sizeof folder_path, path, "/", hex_digest, NULL);
}

// Wait for others who unpack the same on this node; true where it is this process's turn.
static int take_turn(int lock) {
    static const long pause[2] = {0, 20 * 1000 * 1000};
    for (int rounds = 0; rounds < 3000; rounds++) {
        long result = CALL(FLOCK, lock, LOCK_EX | LOCK_NB, 0);
        if (result == 0) return 1;
        if (result != -EAGAIN && result != -EINTR) return 0;
        if (is_complete()) return 1;
        CALL(NANOSLEEP, pause, 0, 0);
    }
    return 0; // whoever has it is stopped or hangs
}

static int has_room(const char *own) {
    struct space space;
    if (CALL(STATFS, own, &space, 0) < 0) return 1; // writing tells
    if (space.flags & ST_NOEXEC) give_reason(own, "programs there may not be executed (mounted noexec)");
    else if ((uint64_t)space.available * (uint64_t)space.block < own_index.unpacked + (own_index.unpacked >> 3))
        give_reason(own, explain(ENOSPC, NULL));
    else return 1;
    return 0;
}

RARE static int unpack_here(int folder, const char *own, int has_turn) {
    char fresh[96], old[96], digits[24], room[48];
    const char *process = number_text((uint64_t)CALL(GETPID, 0, 0, 0), digits);
    join(fresh, sizeof fresh, "new-", hex_digest, has_turn ? NULL : "-", process, NULL);
    join(old, sizeof old, "old-", hex_digest, "-", process, NULL);
    remove_tree(folder, fresh); // of one that was killed
    long result = CALL(MKDIRAT, folder, fresh, 0700);
    if (result >= 0) {
        int inside = (int)CALL4(OPENAT, folder, fresh, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
        result = inside < 0 ? inside : unpack_into(inside);
        CALL(CLOSE, inside, 0, 0);
    }
    if (result >= 0 && (has_turn || !is_complete())) {
        CALL4(RENAMEAT, folder, hex_digest, folder, old); // a damaged one
        result = CALL4(RENAMEAT, folder, fresh, folder, hex_digest);
        remove_tree(folder, old);
    }
    if (result < 0 || !has_turn) remove_tree(folder, fresh);
    if (result < 0 && !is_complete()) give_reason(own, explain(-result, room));
    return is_complete();
}

RARE static int unpack_at(const char *own) {
    char path[LONGEST], lock_path[LONGEST];
    if (!enter_place(own, 1) || !has_room(own)) return 0;
    join(path, sizeof path, own, "/bundle", NULL);
    join(lock_path, sizeof lock_path, path, "/lock", NULL);
    int folder = (int)CALL4(OPENAT, AT_FDCWD, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    int lock = (int)CALL4(OPENAT, AT_FDCWD, lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int has_turn = lock >= 0 && take_turn(lock);
    int is_there = is_complete() || unpack_here(folder, own, has_turn);
    if (is_there && has_turn) remove_unused(folder);
    CALL(CLOSE, lock, 0, 0);
    CALL(CLOSE, folder, 0, 0);
    return is_there;
}
