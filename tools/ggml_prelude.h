/* Included in front of every file of ggml by `tools/deps ggml`, on x86-64 alone.

   GCC 12 tells its optimiser that _tile_loadconfig reads the first 8 of the 64 bytes of a tile configuration, so the
   stores to the rest are dropped and the first tile instruction traps (SIGILL). This names all 64. */
#pragma once
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg\t%0" : : "m"(*(const unsigned char(*)[64])(const void*)(config)))
#endif
