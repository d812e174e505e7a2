// SPDX-License-Identifier: BSD-3-Clause
// Raw deflate streams, RFC 1951.

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

BUSY static int inflate(struct stream *in, const unsigned char *from, size_t packed, unsigned char *into, size_t count) {
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
