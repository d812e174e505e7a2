// SPDX-License-Identifier: BSD-3-Clause
// Where this node shall keep the copy: variables, files of settings, and the directories that all nodes have.

static char **environment;

static const char *variable(const char *name) {
    size_t count = length(name);
    for (char **each = environment; *each; each++)
        if (!memcmp(*each, name, count) && (*each)[count] == '=') return *each + count + 1;
    return "";
}

// Whether a file of settings is the user's or root's word: as kedge.system.private_files.find_foreign_hand has it.
static int is_believed(int file) {
    struct status status;
    if (CALL(FSTAT, file, &status, 0) < 0 || (status.mode & S_IFMT) != S_IFREG) return 0;
    return (status.uid == 0 || status.uid == (uint32_t)CALL(GETEUID, 0, 0, 0)) && !(status.mode & WORLD_WRITES);
}

static int is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

// The value behind `node_directory = "…"` with $USER put in; false where the line is not as plain as that.
static int read_value(const char *at, char *into, size_t room) {
    const char *user = variable("USER");
    size_t used = 0;
    while (is_blank(*at)) at++;
    if (*at++ != '=') return 0;
    while (is_blank(*at)) at++;
    char quote = *at++;
    if ((quote != '"' && quote != '\'') || *at != '/') return 0;
    while (*at != quote) {
        size_t skipped = !memcmp(at, "$USER", 5) ? 5 : !memcmp(at, "${USER}", 7) ? 7 : 0;
        if (!*at || *at == '\n' || *at == '\\' || (*at == '$' && !skipped) || used + length(user) + 2 > room) return 0;
        if (skipped) memcpy(into + used, user, length(user));
        else into[used] = *at;
        used += skipped ? length(user) : 1;
        at += skipped ? skipped : 1;
    }
    while (used > 1 && into[used - 1] == '/') used--;
    into[used] = 0;
    return 1;
}

static int read_setting(const char *path, char *into, size_t room) {
    static const char name[] = "node_directory";
    static char text[65536 + 16]; // zeros behind, so that a look ahead ends
    int file = (int)CALL4(OPENAT, AT_FDCWD, path, O_CLOEXEC, 0);
    if (file < 0) return 0;
    long size = is_believed(file) ? CALL(READ, file, text, sizeof text - 16) : 0;
    CALL(CLOSE, file, 0, 0);
    if (size <= 0) return 0;
    memset(text + size, 0, 16);
    for (const char *at = text; *at;) {
        while (is_blank(*at)) at++;
        if (!memcmp(at, name, sizeof name - 1) && read_value(at + sizeof name - 1, into, room)) return 1;
        while (*at && *at != '\n') at++;
        if (*at) at++;
    }
    return 0;
}

// The directory that variables or files of settings choose, as kedge.image.node.node_cache finds it.
static int find_chosen(char *into, size_t room) {
    static const char *const names[] = {"KEDGE_NODEDIR", "APPTAINER_NODEDIR", "SINGULARITY_NODEDIR"};
    char path[LONGEST];
    for (size_t each = 0; each < sizeof names / sizeof *names; each++)
        if (variable(names[each])[0] == '/') {
            join(into, room, variable(names[each]), NULL);
            for (size_t end_at = length(into); end_at > 1 && into[end_at - 1] == '/'; end_at--) into[end_at - 1] = 0;
            return into[0] != 0;
        }
    const char *base = variable("XDG_CONFIG_HOME"), *home = variable("HOME"), *site = variable("KEDGE_SITE_CONFIG");
    if (base[0] == '/') join(path, sizeof path, base, "/kedge/config.toml", NULL);
    else join(path, sizeof path, home[0] == '/' ? home : "", "/.config/kedge/config.toml", NULL);
    return read_setting(path, into, room) || read_setting(site[0] ? site : "/etc/kedge/config.toml", into, room);
}

// The user's directory below one for all: root of a container cannot use what root of the host has there.
static int name_own(const char *base, char *into, size_t room) {
    char user[24], other[24];
    const char *reason;
    long uid = CALL(GETUID, 0, 0, 0);
    join(into, room, base, "/kedge-", number_text((uint64_t)uid, user), NULL);
    for (uint64_t each = 1; !uid && each < MOST_ROOTS && !is_own_directory(into, &reason) && reason; each++)
        join(into, room, base, "/kedge-0-", number_text(each, other), NULL);
    return into[0] != 0;
}

static int list_places(char places[][LONGEST]) {
    static const char *const shared[] = {"/var/tmp", "/tmp", "/dev/shm"};
    int count = find_chosen(places[0], LONGEST);
    for (size_t each = 0; each < sizeof shared / sizeof *shared; each++) count += name_own(shared[each], places[count], LONGEST);
    return count;
}
