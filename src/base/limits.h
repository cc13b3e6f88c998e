#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

// Every queue, buffer, message and wait has a named limit, here if more than one file needs it.
namespace sinew {

inline constexpr int kRankCountMax = 8;
inline constexpr std::int64_t kContextMax = 1 << 22;     // tokens in one sequence
inline constexpr int kSlotCountMax = 64;                 // sequences kept by one engine
inline constexpr int kChunkTokensMax = 2048;             // tokens of one prefill step
inline constexpr std::size_t kTextBytesMax = 16u << 20;  // text of one request, or a rendered chat
inline constexpr std::size_t kTemplateBytesMax = 1u << 20;    // source of a chat template
inline constexpr std::uint32_t kControlBytesMax = 16u << 20;  // one supervisor <-> rank message
static_assert(kControlBytesMax > kContextMax * sizeof(std::int32_t) / 2,
              "a prompt of half the largest context fits one control message");

// A rank sends a sign of life this often; its supervisor looks closer after `kSilenceSuspect`
// without one and gives the rank up at once if it is dead or stopped, else (a starved machine)
// after `kSilenceMax`.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{200};
inline constexpr std::chrono::milliseconds kSilenceSuspect{1500};
inline constexpr std::chrono::milliseconds kSilenceMax{20000};
// A request in which no rank finishes a step for this long is given up: a rank computes for ever.
inline constexpr std::chrono::seconds kProgressMax{600};
// Longest wait for a rank that makes no progress while it starts and loads.
inline constexpr std::chrono::seconds kLoadSilenceMax{120};

}  // namespace sinew
