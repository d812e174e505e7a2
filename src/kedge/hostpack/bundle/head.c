// SPDX-License-Identifier: BSD-3-Clause
/* The head of a bundle: the first bytes of the one file that is all of kedge.
 *
 * It finds the unpacked copy of what follows it in the file, makes that copy where this node has none, and becomes the
 * interpreter in it. It asks nothing of the host but a kernel of 4.18 or newer: no libc, no loader, no other program.
 *
 * Its index is filled in by `write_bundle.py`. A copy with an empty index stands as bin/python3 in the unpacked copy:
 * that is sys.executable, which starts the interpreter beside it with the loader and the libraries beside it.
 *
 *   payload    u32 blocks, per block u32 bytes, u32 packed bytes; then the blocks, each a raw deflate stream
 *   block      entries: u32 mode, u32 bytes, u32 length of the name; the name; the content. The last one is `complete`.
 *   complete   a line "BYTES NAME" for each file without which the interpreter cannot begin: looked at by every start
 *
 * scripts/build-bundle-head makes it for each machine.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

static const char made_of[] __attribute__((used)) = "kedge-bundle-head made of " MADE_OF;

struct index {
    char magic[16];
    uint64_t offset, size, unpacked; // of the payload, in the file and in memory
    unsigned char digest[32];        // sha256 of the payload
};
static volatile struct index own_index __attribute__((section(".data"), used)) = {"kedge-bundle-1\n", 0, 0, 0, {0}};

enum { LONGEST = 4096, MOST_REASONS = 6, MOST_ROOTS = 100, OWN_FAILURE = 255, FILE_PROBLEM = 30 };
enum { ENOENT = 2, EINTR = 4, EAGAIN = 11, EACCES = 13, EEXIST = 17, EISDIR = 21, ENOSPC = 28, EROFS = 30, EDQUOT = 122 };
enum { O_WRONLY = 1, O_RDWR = 2, O_CREAT = 0100, O_EXCL = 0200, O_CLOEXEC = 02000000 };
enum { AT_FDCWD = -100, AT_SYMLINK_NOFOLLOW = 0x100, AT_REMOVEDIR = 0x200, AT_EXECFN = 31 };
enum { S_IFMT = 0170000, S_IFDIR = 0040000, S_IFREG = 0100000, S_ISVTX = 01000, OTHERS_WRITE = 022, WORLD_WRITES = 02 };
enum { LOCK_EX = 2, LOCK_NB = 4, ST_NOEXEC = 8 };

// ---------------------------------------------------------------------------------------------- the kernel

#if defined(__x86_64__)
enum { O_DIRECTORY = 0200000, O_NOFOLLOW = 0400000 };
enum { READ = 0, WRITE = 1, CLOSE = 3, FSTAT = 5, LSEEK = 8, MMAP = 9, MUNMAP = 11, NANOSLEEP = 35, GETPID = 39 };
enum { EXECVE = 59, FLOCK = 73, FSYNC = 74, UMASK = 95, GETUID = 102, GETEUID = 107, STATFS = 137, GETDENTS64 = 217 };
enum { EXIT_GROUP = 231, OPENAT = 257, MKDIRAT = 258, FSTATAT = 262, UNLINKAT = 263, RENAMEAT = 264, READLINKAT = 267 };
struct status {
    uint64_t device, inode, links;
    uint32_t mode, uid, gid, unused;
    uint64_t special;
    int64_t size;
    uint64_t rest[11];
};
static long call6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n hlt\n");
#elif defined(__aarch64__)
enum { O_DIRECTORY = 040000, O_NOFOLLOW = 0100000 };
enum { FLOCK = 32, MKDIRAT = 34, UNLINKAT = 35, RENAMEAT = 38, STATFS = 43, OPENAT = 56, CLOSE = 57, GETDENTS64 = 61 };
enum { LSEEK = 62, READ = 63, WRITE = 64, READLINKAT = 78, FSTATAT = 79, FSTAT = 80, FSYNC = 82, EXIT_GROUP = 94 };
enum { NANOSLEEP = 101, UMASK = 166, GETPID = 172, GETUID = 174, GETEUID = 175, MUNMAP = 215, EXECVE = 221, MMAP = 222 };
struct status {
    uint64_t device, inode;
    uint32_t mode, links, uid, gid;
    uint64_t special, unused;
    int64_t size;
    uint64_t rest[11];
};
static long call6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n mov x0, sp\n bl begin\n brk #0\n");
#else
#error "no head for this machine"
#endif

#define CALL(number, a, b, c) call6(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define CALL4(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

struct space {
    long type, block, blocks, free, available, files, free_files;
    int identity[2];
    long longest, fragment, flags, spare[4];
};

// The compiler calls these three by itself.
void *memcpy(void *into, const void *from, size_t count) {
    char *to = into;
    const char *source = from;
    for (; count >= 8; count -= 8, to += 8, source += 8) __builtin_memcpy(to, source, 8);
    while (count--) *to++ = *source++;
    return into;
}
void *memset(void *into, int value, size_t count) {
    char *to = into;
    uint64_t eight = 0x0101010101010101u * (unsigned char)value;
    for (; count >= 8; count -= 8, to += 8) __builtin_memcpy(to, &eight, 8);
    while (count--) *to++ = (char)value;
    return into;
}
int memcmp(const void *first, const void *second, size_t count) {
    const unsigned char *one = first, *other = second;
    for (; count; count--, one++, other++)
        if (*one != *other) return *one - *other;
    return 0;
}

static size_t length(const char *text) {
    size_t count = 0;
    while (text[count]) count++;
    return count;
}
static int is_same(const char *one, const char *other) {
    size_t count = length(one);
    return count == length(other) && !memcmp(one, other, count);
}
static const char *last_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/') name = path + 1;
    return name;
}

static void *get_memory(size_t count) {
    enum { READABLE_WRITABLE = 3, PRIVATE_ANONYMOUS = 0x22 };
    long place = call6(MMAP, 0, (long)count, READABLE_WRITABLE, PRIVATE_ANONYMOUS, -1, 0);
    return place < 0 && place > -4096 ? NULL : (void *)place;
}
static void give_back(void *memory, size_t count) {
    if (memory) CALL(MUNMAP, memory, count, 0);
}

// Texts are joined into a buffer; what does not fit makes the path unusable and not another one.
static int join(char *into, size_t room, ...) {
    va_list parts;
    size_t used = 0;
    va_start(parts, room);
    for (const char *part; (part = va_arg(parts, const char *));) {
        size_t count = length(part);
        if (used + count >= room) {
            va_end(parts);
            into[0] = 0;
            return 0;
        }
        memcpy(into + used, part, count);
        used += count;
    }
    va_end(parts);
    into[used] = 0;
    return 1;
}
static const char *number_text(uint64_t number, char *room) { // of at least 24 bytes
    char *at = room + 23;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    return at;
}

// ---------------------------------------------------------------------------------------------- what is said

static char said[8192];
static size_t said_length;
static void say(const char *text) {
    size_t count = length(text);
    if (count > sizeof said - said_length) count = sizeof said - said_length;
    memcpy(said + said_length, text, count);
    said_length += count;
}
static void say_number(uint64_t number) {
    char room[24];
    say(number_text(number, room));
}
static _Noreturn void end(int status) {
    CALL(WRITE, 2, said, said_length);
    for (;;) CALL(EXIT_GROUP, status, 0, 0);
}
static const char *explain(long number, char *room) {
    switch (number) {
    case 1: return "Operation not permitted";
    case ENOENT: return "No such file or directory";
    case 5: return "Input/output error";
    case 12: return "Cannot allocate memory";
    case EACCES: return "Permission denied";
    case 20: return "Not a directory";
    case ENOSPC: return "No space left on device";
    case EROFS: return "Read-only file system";
    case 36: return "File name too long";
    case EDQUOT: return "Disk quota exceeded";
    }
    join(room, 48, "error ", number_text((uint64_t)number, room + 24), NULL);
    return room;
}

// ---------------------------------------------------------------------------------------------- files

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

// Whether nobody but root and the user can put another directory in the place of one in here.
static int is_safe_parent(const char *path) {
    struct status status;
    if (CALL4(FSTATAT, AT_FDCWD, path, &status, 0) < 0) return 0;
    return !(status.mode & WORLD_WRITES) || status.mode & S_ISVTX;
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
static void remove_tree(int folder, const char *name) {
    struct entry {
        uint64_t inode, next;
        uint16_t size;
        uint8_t kind;
        char name[];
    };
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

// ---------------------------------------------------------------------------------------------- sha256, FIPS 180-4

static uint32_t rotate(uint32_t word, int count) { return word >> count | word << (32 - count); }

// The constants are the first bits of the roots of primes: the fraction of a square or cube root, by bisection.
static uint32_t root_bits(uint32_t prime, int is_cube) {
    unsigned __int128 low = 0, high = (unsigned __int128)1 << 40; // the root times 2^32
    while (low + 1 < high) {
        unsigned __int128 middle = (low + high) / 2;
        unsigned __int128 power = middle * middle, bound = (unsigned __int128)prime << 64;
        int is_over;
        if (is_cube) { // middle < 2^35, so its cube fits 128 bits
            power *= middle;
            bound <<= 32;
        }
        is_over = power > bound;
        if (is_over) high = middle;
        else low = middle;
    }
    return (uint32_t)low;
}

static uint32_t round_words[64], state[8];

static void begin_digest(void) {
    int count = 0;
    for (uint32_t prime = 2; count < 64; prime++) {
        int is_prime = 1;
        for (uint32_t part = 2; part * part <= prime; part++) is_prime &= prime % part != 0;
        if (!is_prime) continue;
        if (count < 8) state[count] = root_bits(prime, 0);
        round_words[count++] = root_bits(prime, 1);
    }
}

static void add_chunk(const unsigned char *data) {
    uint32_t words[64], v[8];
    for (int at = 0; at < 16; at++, data += 4)
        words[at] = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    for (int at = 16; at < 64; at++) {
        uint32_t early = words[at - 15], late = words[at - 2];
        words[at] = words[at - 16] + (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) + words[at - 7] +
                    (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int at = 0; at < 64; at++) {
        uint32_t one = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) +
                       round_words[at] + words[at];
        uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        for (int each = 7; each > 0; each--) v[each] = v[each - 1];
        v[4] += one;
        v[0] = one + two;
    }
    for (int each = 0; each < 8; each++) state[each] += v[each];
}

static int has_digest(const unsigned char *data, size_t count, const volatile unsigned char *digest) {
    unsigned char last[128] = {0};
    size_t whole = count & ~(size_t)63, left = count - whole, end_of_last = left < 56 ? 64 : 128;
    begin_digest();
    for (size_t at = 0; at < whole; at += 64) add_chunk(data + at);
    memcpy(last, data + whole, left);
    last[left] = 0x80;
    for (int each = 0; each < 8; each++) last[end_of_last - 1 - (size_t)each] = (unsigned char)((count << 3) >> 8 * each);
    add_chunk(last);
    if (end_of_last == 128) add_chunk(last + 64);
    for (int each = 0; each < 32; each++)
        if ((unsigned char)(state[each / 4] >> (24 - each % 4 * 8)) != digest[each]) return 0;
    return 1;
}

// ---------------------------------------------------------------------------------------------- deflate, RFC 1951

enum { LONGEST_CODE = 15, TABLE = 1 << LONGEST_CODE, LITERALS = 288, DISTANCES = 32, LENGTH_CODES = 19 };
struct stream {
    const unsigned char *at, *end;
    unsigned char *begin, *out, *out_end;
    uint64_t bits;
    int count;
    uint16_t literals[TABLE], distances[TABLE]; // by the next 15 bits: symbol * 16 + length of its code
};

static void fill(struct stream *in) {
    while (in->count <= 48) {
        if (in->at < in->end) in->bits |= (uint64_t)*in->at << in->count;
        in->at++; // past the end these are zeros; `inflate` looks at the end whether it went too far
        in->count += 8;
    }
}
static uint32_t take(struct stream *in, int count) {
    uint32_t value = (uint32_t)(in->bits & ((1u << count) - 1));
    in->bits >>= count;
    in->count -= count;
    return value;
}
static int next_symbol(struct stream *in, const uint16_t *table) {
    uint16_t found = table[in->bits & (TABLE - 1)];
    if (!found) return -1;
    take(in, found & 15);
    return found >> 4;
}

static void make_table(uint16_t *table, const uint8_t *lengths, int symbols) {
    uint32_t code = 0;
    memset(table, 0, TABLE * sizeof *table);
    for (int size = 1; size <= LONGEST_CODE; size++, code <<= 1)
        for (int symbol = 0; symbol < symbols; symbol++) {
            uint32_t turned = 0;
            if (lengths[symbol] != size) continue;
            for (int bit = 0; bit < size; bit++) turned |= (code >> bit & 1) << (size - 1 - bit);
            for (; turned < TABLE; turned += 1u << size) table[turned] = (uint16_t)(symbol << 4 | size);
            code++;
        }
}

static int read_tables(struct stream *in) {
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + DISTANCES] = {0}, own[LENGTH_CODES] = {0};
    fill(in);
    int literals = (int)take(in, 5) + 257, distances = (int)take(in, 5) + 1, codes = (int)take(in, 4) + 4, done = 0;
    for (int each = 0; each < codes; each++) {
        fill(in);
        own[order[each]] = (uint8_t)take(in, 3);
    }
    make_table(in->literals, own, LENGTH_CODES);
    while (done < literals + distances) {
        fill(in);
        int symbol = next_symbol(in, in->literals), repeat = 1;
        uint8_t value = (uint8_t)symbol;
        if (symbol < 0) return 0;
        if (symbol >= 16) {
            if (symbol == 16 && !done) return 0;
            value = symbol == 16 ? lengths[done - 1] : 0;
            repeat = symbol == 16 ? 3 + (int)take(in, 2) : symbol == 17 ? 3 + (int)take(in, 3) : 11 + (int)take(in, 7);
        }
        if (done + repeat > literals + distances) return 0;
        while (repeat--) lengths[done++] = value;
    }
    make_table(in->literals, lengths, literals);
    make_table(in->distances, lengths + literals, distances);
    return 1;
}

static void set_fixed_tables(struct stream *in) {
    uint8_t lengths[LITERALS];
    for (int each = 0; each < LITERALS; each++) lengths[each] = each < 144 ? 8 : each < 256 ? 9 : each < 280 ? 7 : 8;
    make_table(in->literals, lengths, LITERALS);
    memset(lengths, 5, DISTANCES);
    make_table(in->distances, lengths, DISTANCES);
}

static int copy_back(struct stream *in, int symbol) {
    static const uint16_t bases[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    if (symbol > 285) return 0;
    int more = symbol < 265 || symbol == 285 ? 0 : (symbol - 261) / 4;
    size_t count = bases[symbol - 257] + take(in, more);
    fill(in);
    int far = next_symbol(in, in->distances);
    if (far < 0 || far > 29) return 0;
    more = far < 4 ? 0 : (far - 2) / 2;
    size_t distance = (far < 4 ? (size_t)far + 1 : ((size_t)(2 + far % 2) << more) + 1) + take(in, more);
    if (distance > (size_t)(in->out - in->begin) || count > (size_t)(in->out_end - in->out)) return 0;
    const unsigned char *from = in->out - distance;
    for (; distance >= 8 && count >= 8; count -= 8, from += 8, in->out += 8) __builtin_memcpy(in->out, from, 8);
    for (; count; count--) *in->out++ = *from++;
    return 1;
}

static int copy_stored(struct stream *in) {
    take(in, in->count & 7);
    fill(in);
    size_t count = take(in, 16);
    take(in, 16);
    in->at -= in->count / 8; // what was looked at ahead
    in->bits = 0;
    in->count = 0;
    if (in->at > in->end || count > (size_t)(in->end - in->at) || count > (size_t)(in->out_end - in->out)) return 0;
    memcpy(in->out, in->at, count);
    in->at += count;
    in->out += count;
    return 1;
}

static int inflate_block(struct stream *in, int kind) {
    if (kind == 0) return copy_stored(in);
    if (kind == 1) set_fixed_tables(in);
    else if (kind != 2 || !read_tables(in)) return 0;
    for (;;) {
        fill(in);
        int symbol = next_symbol(in, in->literals);
        if (symbol == 256) return 1;
        if (symbol < 0 || in->at > in->end + 16) return 0;
        if (symbol > 256) {
            if (!copy_back(in, symbol)) return 0;
        } else {
            if (in->out == in->out_end) return 0;
            *in->out++ = (unsigned char)symbol;
        }
    }
}

static int inflate(struct stream *in, const unsigned char *from, size_t packed, unsigned char *into, size_t count) {
    in->at = from;
    in->end = from + packed;
    in->begin = in->out = into;
    in->out_end = into + count;
    in->bits = 0;
    in->count = 0;
    for (int is_last = 0; !is_last;) {
        fill(in);
        is_last = (int)take(in, 1);
        if (!inflate_block(in, (int)take(in, 2))) return 0;
    }
    return in->out == in->out_end && in->at - in->count / 8 <= in->end;
}

// ---------------------------------------------------------------------------------------------- unpacking

static char own_path[LONGEST]; // of this file
static int status_of_failure;

static _Noreturn void refuse_bundle(uint64_t found, uint64_t expected) {
    say("kedge: ");
    say(own_path);
    if (found < expected) {
        say(" is truncated: it has ");
        say_number(found);
        say(" of ");
        say_number(expected);
        say(" bytes\n");
    } else {
        say(" is damaged: its content does not match its checksum\n");
    }
    say("hint: copy it again\n");
    end(status_of_failure);
}

// The payload in memory, checked; ends with one error where the file is not whole.
static unsigned char *read_payload(void) {
    static unsigned char *payload;
    uint64_t offset = own_index.offset, size = own_index.size;
    struct status status;
    if (payload) return payload;
    int file = (int)CALL4(OPENAT, AT_FDCWD, "/proc/self/exe", O_CLOEXEC, 0);
    if (file < 0) file = (int)CALL4(OPENAT, AT_FDCWD, own_path, O_CLOEXEC, 0);
    if (file < 0 || CALL(FSTAT, file, &status, 0) < 0) {
        char room[48];
        say("kedge: cannot read ");
        say(own_path);
        say(": ");
        say(explain(file < 0 ? -file : 5, room));
        say("\nhint: make it readable: chmod u+r FILE\n");
        end(status_of_failure);
    }
    if ((uint64_t)status.size < offset + size) refuse_bundle((uint64_t)status.size, offset + size);
    payload = get_memory(size);
    if (!payload) {
        say("kedge: no memory to unpack ");
        say(own_path);
        say("\nhint: 'ulimit -v' shows the limit of this shell\n");
        end(status_of_failure);
    }
    CALL(LSEEK, file, offset, 0);
    if (!is_whole(file, (char *)payload, size) || !has_digest(payload, size, own_index.digest))
        refuse_bundle(offset + size, offset + size);
    CALL(CLOSE, file, 0, 0);
    return payload;
}

static uint32_t number_at(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static long write_entry(int folder, const char *name, uint32_t mode, const char *data, size_t size) {
    if ((mode & S_IFMT) == S_IFDIR) return CALL(MKDIRAT, folder, name, 0700);
    long file = CALL4(OPENAT, folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0700);
    if (file < 0) return file;
    long result = write_whole((int)file, data, size);
    // Without the programs, libraries and the mark nothing can say that something else got lost in a crash.
    if (result >= 0 && (mode & 0100 || is_same(name, "complete"))) result = CALL(FSYNC, file, 0, 0);
    CALL(CLOSE, file, 0, 0);
    return result;
}

static long write_entries(int folder, const unsigned char *at, const unsigned char *stop) {
    char name[512];
    while (at < stop) {
        uint32_t mode = number_at(at), size = number_at(at + 4), name_length = number_at(at + 8);
        if (stop - at < 12 || name_length >= sizeof name || (uint64_t)(stop - at) < 12ull + name_length + size) return -5;
        memcpy(name, at + 12, name_length);
        name[name_length] = 0;
        long result = write_entry(folder, name, mode, (const char *)at + 12 + name_length, size);
        if (result < 0) return result;
        at += 12ull + name_length + size;
    }
    return 0;
}

static long unpack_into(int folder) {
    const unsigned char *payload = read_payload(), *stop = payload + own_index.size;
    uint32_t blocks = number_at(payload);
    const unsigned char *table = payload + 4, *at = table + 8ull * blocks;
    struct stream *in = get_memory(sizeof *in);
    long result = in ? 0 : -12;
    for (uint32_t each = 0; each < blocks && result >= 0; each++, table += 8) {
        size_t size = number_at(table), packed = number_at(table + 4);
        unsigned char *block = get_memory(size);
        if (!block) result = -12;
        else if (at > stop || packed > (size_t)(stop - at) || !inflate(in, at, packed, block, size)) result = -5;
        else result = write_entries(folder, block, block + size);
        give_back(block, size);
        at += packed;
    }
    give_back(in, sizeof *in);
    return result;
}

// ---------------------------------------------------------------------------------------------- places

static char hex_digest[33];
static char folder_path[LONGEST]; // the unpacked copy: absolute
static const char *reasons[MOST_REASONS][2];
static int reason_count;

static void give_reason(const char *place, const char *reason) {
    static char kept[8192];
    static size_t used;
    size_t place_size = length(place) + 1, reason_size = length(reason) + 1;
    for (int each = 0; each < reason_count; each++)
        if (is_same(reasons[each][0], place)) return;
    if (reason_count == MOST_REASONS || place_size + reason_size > sizeof kept - used) return;
    reasons[reason_count][0] = memcpy(kept + used, place, place_size);
    reasons[reason_count++][1] = memcpy(kept + used + place_size, reason, reason_size);
    used += place_size + reason_size;
}

// Whether the copy at folder_path is all there, by its mark: the files that it names, with their sizes.
static int is_complete(void) {
    static char text[16384];
    char path[LONGEST];
    struct status status;
    if (!join(path, sizeof path, folder_path, "/complete", NULL)) return 0;
    int file = (int)CALL4(OPENAT, AT_FDCWD, path, O_NOFOLLOW | O_CLOEXEC, 0);
    if (file < 0) return 0;
    long size = CALL(READ, file, text, sizeof text - 1);
    CALL(CLOSE, file, 0, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    for (char *at = text; *at;) {
        int64_t expected = 0;
        for (; *at >= '0' && *at <= '9'; at++) expected = expected * 10 + (*at - '0');
        if (*at++ != ' ') return 0;
        char *name = at;
        while (*at && *at != '\n') at++;
        if (*at != '\n') return 0;
        *at++ = 0;
        if (!join(path, sizeof path, folder_path, "/", name, NULL)) return 0;
        if (CALL4(FSTATAT, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) < 0) return 0;
        if ((status.mode & S_IFMT) != S_IFREG || status.size != expected) return 0;
    }
    return 1;
}

// Make a directory and those above it that are missing.
static void make_directories(const char *path) {
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
    char path[LONGEST], above[LONGEST];
    const char *reason;
    if (is_made) make_directories(own);
    if (!join(above, sizeof above, own, NULL)) return 0;
    size_t cut = (size_t)(last_name(above) - above);
    above[cut > 1 ? cut - 1 : 1] = 0;
    if (!is_own_directory(own, &reason)) {
        if (reason || is_made) give_reason(own, reason ? reason : "it cannot be created");
        return 0;
    }
    if (!is_safe_parent(above)) {
        give_reason(own, "anybody could replace it: the directory above it is not sticky");
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

static int unpack_here(int folder, const char *own, int has_turn) {
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

static int unpack_at(const char *own) {
    char path[LONGEST], lock_path[LONGEST];
    if (!enter_place(own, 1) || !has_room(own)) return 0;
    join(path, sizeof path, own, "/bundle", NULL);
    join(lock_path, sizeof lock_path, path, "/lock", NULL);
    int folder = (int)CALL4(OPENAT, AT_FDCWD, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    int lock = (int)CALL4(OPENAT, AT_FDCWD, lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int has_turn = lock >= 0 && take_turn(lock);
    int is_there = is_complete() || unpack_here(folder, own, has_turn);
    CALL(CLOSE, lock, 0, 0);
    CALL(CLOSE, folder, 0, 0);
    return is_there;
}

// ---------------------------------------------------------------------------------------------- the node directory

static char **environment;

static const char *variable(const char *name) {
    size_t count = length(name);
    for (char **each = environment; *each; each++)
        if (!memcmp(*each, name, count) && (*each)[count] == '=') return *each + count + 1;
    return "";
}

// Whether a file of settings is the user's or root's word: as kedge.posix.private_files.find_foreign_hand has it.
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

// The directory that variables or files of settings choose, as kedge.runtime.images.node_cache finds it.
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

// ---------------------------------------------------------------------------------------------- becoming Python

// Become the interpreter of the copy at folder_path; returns why that failed. The loader is told where its libraries
// are by an option, because a variable would reach every program that kedge starts.
static long become_python(int argc, char **argv, int skipped, const char *verb, int is_plain) {
    static char loader[LONGEST], libraries[LONGEST], python[LONGEST], interpreter[LONGEST], start[LONGEST];
    static char bundle[LONGEST + 8];
    const char **words = get_memory(((size_t)argc + 16) * sizeof *words);
    int count = 0;
    if (!words) return -12;
    if (!join(loader, sizeof loader, folder_path, "/so/ld.so", NULL) ||
        !join(libraries, sizeof libraries, folder_path, "/so", NULL) ||
        !join(python, sizeof python, folder_path, "/bin/python3", NULL) ||
        !join(interpreter, sizeof interpreter, folder_path, "/bin/interpreter", NULL) ||
        !join(start, sizeof start, folder_path, "/start.pyc", NULL))
        return -36;
    const char *const first[] = {loader, "--library-path", libraries, "--argv0", python, interpreter};
    for (size_t each = 0; each < sizeof first / sizeof *first; each++) words[count++] = first[each];
    if (own_index.size) {
        join(bundle, sizeof bundle, "kedge=", own_path, NULL);
        words[count++] = "-X";
        words[count++] = bundle;
    }
    if (!is_plain) {
        words[count++] = "-IS";
        words[count++] = start;
    }
    if (verb) words[count++] = verb;
    for (int each = skipped; each < argc; each++) words[count++] = argv[each];
    words[count] = NULL;
    return CALL(EXECVE, loader, words, environment);
}

static void find_own_path(char **argv, const uint64_t *auxiliary) {
    static const char gone[] = " (deleted)";
    long size = CALL4(READLINKAT, AT_FDCWD, "/proc/self/exe", own_path, sizeof own_path - 1);
    size_t end_at = size > 0 ? (size_t)size : 0;
    own_path[end_at] = 0;
    if (end_at > sizeof gone && is_same(own_path + end_at - (sizeof gone - 1), gone)) own_path[end_at - (sizeof gone - 1)] = 0;
    if (own_path[0] == '/') return;
    for (; auxiliary[0]; auxiliary += 2)
        if (auxiliary[0] == AT_EXECFN) join(own_path, sizeof own_path, (const char *)auxiliary[1], NULL);
    if (!own_path[0] && argv[0]) join(own_path, sizeof own_path, argv[0], NULL);
}

static _Noreturn void start_beside(int argc, char **argv) {
    char room[48];
    long result = -ENOENT;
    size_t cut = length(own_path);
    for (int parts = 0; parts < 2 && cut; parts++)
        while (cut && own_path[--cut] != '/') continue;
    memcpy(folder_path, own_path, cut);
    folder_path[cut] = 0;
    if (is_complete()) result = become_python(argc, argv, 1, NULL, 1);
    say("kedge: cannot start Python in ");
    say(folder_path);
    say(": ");
    say(explain(-result, room));
    say("\nhint: start kedge again, which unpacks it anew; if this is a bundle, it is truncated: copy it again\n");
    end(FILE_PROBLEM);
}

static _Noreturn void refuse_places(void) {
    say("kedge: no directory of this node can hold the unpacked files of ");
    say(own_path);
    say("\n");
    for (int each = 0; each < reason_count; each++) {
        say("  ");
        say(reasons[each][0]);
        say(": ");
        say(reasons[each][1]);
        say("\n");
    }
    say("hint: choose a directory of your own with ");
    say_number((own_index.unpacked >> 20) + 1);
    say(" MiB of free space: KEDGE_NODEDIR=DIRECTORY\n");
    end(status_of_failure);
}

static int starts_container(int argc, char **argv) {
    static const char *const verbs[] = {"exec", "run", "shell", "test"};
    for (int each = 1; each < argc && (each == 1 || argv[each - 1][0] == '-'); each++)
        for (size_t verb = 0; verb < sizeof verbs / sizeof *verbs; verb++)
            if (is_same(argv[each], verbs[verb])) return 1;
    return 0;
}

__attribute__((used, noreturn)) void begin(uint64_t *stack) {
    static char places[4][LONGEST];
    char room[48];
    int argc = (int)stack[0], skipped = 1, is_plain = 0;
    char **argv = (char **)(stack + 1);
    const char *verb = NULL;
    environment = argv + argc + 1;
    uint64_t *auxiliary = (uint64_t *)environment;
    while (*auxiliary) auxiliary++;
    find_own_path(argv, auxiliary + 1);
    if (!own_index.size) start_beside(argc, argv);
    status_of_failure = starts_container(argc, argv) ? OWN_FAILURE : FILE_PROBLEM;
    if (argc > 0 && is_same(last_name(argv[0]), "kedge-pyxis")) {
        verb = "pyxis"; // Pyxis gives its importer no word before `get`
    } else if (argc > 1 && is_same(argv[1], "python")) {
        is_plain = 1;
        skipped = 2;
    }
    for (int each = 0; each < 16; each++) {
        static const char digits[] = "0123456789abcdef";
        hex_digest[2 * each] = digits[own_index.digest[each] >> 4];
        hex_digest[2 * each + 1] = digits[own_index.digest[each] & 15];
    }
    int count = list_places(places);
    for (int each = 0; each < count; each++)
        if (enter_place(places[each], 0) && is_complete()) {
            long result = become_python(argc, argv, skipped, verb, is_plain);
            if (result == -7) { // E2BIG
                say("kedge: too many arguments or variables for this kernel\nhint: 'getconf ARG_MAX' shows the limit\n");
                end(status_of_failure);
            }
            give_reason(places[each], explain(-result, room));
        }
    long mask = CALL(UMASK, 077, 0, 0);
    for (int each = 0; each < count; each++)
        if (unpack_at(places[each])) {
            CALL(UMASK, mask, 0, 0);
            give_reason(places[each], explain(-become_python(argc, argv, skipped, verb, is_plain), room));
            CALL(UMASK, 077, 0, 0);
        }
    refuse_places();
}
