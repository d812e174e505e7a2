// SPDX-License-Identifier: BSD-3-Clause
// sha256, FIPS 180-4.

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

BUSY static int has_digest(const unsigned char *data, size_t count, const volatile unsigned char *digest) {
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
