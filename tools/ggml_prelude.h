/* Included in front of every file of ggml by `tools/deps ggml`, on x86-64 alone.

   ggml aligns tensors to 32 bytes, because files that it maps promise no more. A row that starts in the middle of a
   cache line makes every AVX-512 access to it touch two lines, and the AMX kernel, which waits for its stores, takes
   1.3 to 1.8 times as long. Nothing is mapped here, so tensors start at cache lines. The header is read before ggml's
   own files read it; where it cannot be found (CMake's trial programs) there are no tensors.

   The AMX intrinsics of GCC 12 do not tell its optimiser which memory they touch: it drops stores to a tile
   configuration, so that the first tile instruction traps (SIGILL), and may move other stores past the loads that need
   them. These are the same instructions with their memory named. */
#pragma once
#if __has_include("ggml-impl.h")
#include "ggml-impl.h"
#undef TENSOR_ALIGNMENT
#define TENSOR_ALIGNMENT 64
#endif

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_stream_loadd
#define SINEW_TILE_LOAD(name, tile, base, stride)                            \
  __asm__ volatile(name "\t(%0,%1,1), %%tmm" #tile                           \
                   :                                                         \
                   : "r"((const void*)(base)), "r"((long)(stride)) : "memory")
#define SINEW_TILE_STORE(tile, base, stride)                                 \
  __asm__ volatile("tilestored\t%%tmm" #tile ", (%0,%1,1)"                   \
                   :                                                         \
                   : "r"((void*)(base)), "r"((long)(stride)) : "memory")
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg\t%0" : : "m"(*(const unsigned char(*)[64])(const void*)(config)))
#define _tile_loadd(tile, base, stride) SINEW_TILE_LOAD("tileloadd", tile, base, stride)
#define _tile_stream_loadd(tile, base, stride) SINEW_TILE_LOAD("tileloaddt1", tile, base, stride)
#define _tile_stored(tile, base, stride) SINEW_TILE_STORE(tile, base, stride)
#endif
