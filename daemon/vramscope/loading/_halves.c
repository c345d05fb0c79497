/* bfloat16 to float16 in one pass, while the numbers are in the processor's cache; torch takes two, through float32.
 *
 * Called from loading/halves.py by ctypes, which holds no lock of the interpreter meanwhile. Only x86-64 processors with
 * AVX2 and F16C (all since 2013) are served, and those with AVX-512 better; elsewhere vramscope_can_convert() says no.
 */

#define _XOPEN_SOURCE 700
#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ITEM_BYTES = 2 };

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

enum { LANES_BYTES = 8 * ITEM_BYTES, WIDE_BYTES = 16 * ITEM_BYTES };

/* With AVX2 the system saves the wide registers. F16C's bit is read here: GCC before 11 has no name for it. */
int vramscope_can_convert(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

/* All of these round to nearest, ties to even, as torch does. `to` may be `from`; neither need be aligned. */
__attribute__((target("avx2,f16c"))) static void convert_lanes(char *to, const char *from)
{
    __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16);
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_castsi256_ps(wide), _MM_FROUND_TO_NEAREST_INT));
}

/* Takes half the time of the narrow one. Returns how many bytes of these it has done. */
__attribute__((target("avx512f"))) static size_t convert_wide(char *to, const char *from, size_t nbytes)
{
    size_t at = 0;
    for (; nbytes - at >= WIDE_BYTES; at += WIDE_BYTES) {
        __m256i narrow = _mm256_loadu_si256((const __m256i *)(from + at));
        __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
        _mm256_storeu_si256((__m256i *)(to + at), _mm512_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
    }
    return at;
}

__attribute__((target("avx2,f16c"))) void vramscope_convert(char *to, const char *from, size_t count)
{
    size_t nbytes = count * ITEM_BYTES, rest = nbytes % LANES_BYTES, whole = nbytes - rest;
    size_t at = __builtin_cpu_supports("avx512f") ? convert_wide(to, from, whole) : 0;
    for (; at < whole; at += LANES_BYTES)
        convert_lanes(to + at, from + at);
    if (rest) {
        char lanes[LANES_BYTES] = {0};
        memcpy(lanes, from + whole, rest);
        convert_lanes(lanes, lanes);
        memcpy(to + whole, lanes, rest);
    }
}

#else

int vramscope_can_convert(void)
{
    return 0;
}

void vramscope_convert(char *to, const char *from, size_t count)
{
    (void)to, (void)from, (void)count;
}

#endif

/* Half of a second-level cache of 512 KiB, which is a small one. */
enum { CHUNK_BYTES = 256 << 10 };

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* Reads until that many bytes are there or the file ends. Returns how many are, or -errno. */
static int64_t read_bytes(int file, int64_t offset, char *memory, size_t nbytes)
{
    size_t done = 0;
    while (done < nbytes) {
        ssize_t got = pread(file, memory + done, nbytes - done, offset + (int64_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

/* Reads `nbytes` of bfloat16 from an offset of a file into memory, and makes float16 of them there.
 *
 * Returns the bytes read: less at the end of the file. On an error returns -errno. A last byte that is only half of a
 * number stays as it is. Adds to seconds[0] what reading took, and to seconds[1] what converting took.
 */
int64_t vramscope_read(int file, int64_t offset, char *memory, int64_t nbytes, double seconds[2])
{
    int64_t done = 0;
    double began = now();
    while (done < nbytes) {
        int64_t left = nbytes - done;
        size_t chunk = (size_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES);
        int64_t got = read_bytes(file, offset + done, memory + done, chunk);
        if (got < 0)
            return got;
        double between = now();
        vramscope_convert(memory + done, memory + done, (size_t)got / ITEM_BYTES);
        double ended = now();
        seconds[0] += between - began;
        seconds[1] += ended - between;
        began = ended;
        done += got;
        if ((size_t)got < chunk)
            break;
    }
    return done;
}
