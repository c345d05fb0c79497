/* bfloat16 to float16 in one pass, while the numbers are in the processor's cache; torch takes two, through float32.
 *
 * Called from loading/halves.py by ctypes, which holds no lock of the interpreter meanwhile. Only x86-64 processors with
 * AVX2 and F16C (all since 2013) are served; elsewhere vramscope_can_convert() says no.
 */

#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define LANES 8

int vramscope_can_convert(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

/* Rounds to nearest, ties to even, as torch does. `to` may be `from`. */
__attribute__((target("avx2,f16c"))) static void convert_lanes(uint16_t *to, const uint16_t *from)
{
    __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16);
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_castsi256_ps(wide), _MM_FROUND_TO_NEAREST_INT));
}

__attribute__((target("avx2,f16c"))) void vramscope_convert(uint16_t *to, const uint16_t *from, size_t count)
{
    size_t whole = count - count % LANES;
    for (size_t at = 0; at < whole; at += LANES)
        convert_lanes(to + at, from + at);
    if (whole < count) {
        uint16_t rest[LANES] = {0};
        memcpy(rest, from + whole, (count - whole) * sizeof *rest);
        convert_lanes(rest, rest);
        memcpy(to + whole, rest, (count - whole) * sizeof *rest);
    }
}

#else

int vramscope_can_convert(void)
{
    return 0;
}

void vramscope_convert(uint16_t *to, const uint16_t *from, size_t count)
{
    (void)to, (void)from, (void)count;
}

#endif

/* Half of a second-level cache of 512 KiB, which is a small one. */
enum { CHUNK_BYTES = 256 << 10 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Reads `nbytes` of bfloat16 from an offset of a file into memory, and makes float16 of them there.
 *
 * Returns the bytes read: less at the end of the file. On an error returns -errno. Adds to seconds[0] what reading took,
 * and to seconds[1] what converting took.
 */
int64_t vramscope_read(int file, int64_t offset, char *memory, int64_t nbytes, double seconds[2])
{
    int64_t done = 0;
    double began = now();
    while (done < nbytes) {
        size_t chunk = nbytes - done < CHUNK_BYTES ? (size_t)(nbytes - done) : CHUNK_BYTES;
        size_t got = 0;
        while (got < chunk) {
            ssize_t more = pread(file, memory + done + got, chunk - got, offset + done + (int64_t)got);
            if (more < 0 && errno == EINTR)
                continue;
            if (more < 0)
                return -errno;
            if (more == 0)
                return done + (int64_t)got;
            got += (size_t)more;
        }
        double read = now();
        vramscope_convert((uint16_t *)(memory + done), (const uint16_t *)(memory + done), chunk / sizeof(uint16_t));
        double converted = now();
        seconds[0] += read - began;
        seconds[1] += converted - read;
        began = converted;
        done += (int64_t)chunk;
    }
    return done;
}
