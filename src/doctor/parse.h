#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace sinew {

// What tools and files of the system say, as facts. Pure; text that is not understood gives nothing
// rather than an error, because a tool of another version is no fault of the machine.

// Bytes behind `key` ("MemTotal") in /proc/meminfo.
std::optional<std::uint64_t> parse_meminfo(std::string_view text, std::string_view key);
// memory.max of a control group; nothing for "max".
std::optional<std::uint64_t> parse_memory_limit(std::string_view text);
std::optional<std::int64_t> parse_number(std::string_view text);

// `ip -j addr`.
std::vector<NetworkInterface> parse_ip_addr(std::string_view json);
// `ifconfig` of macOS.
std::vector<NetworkInterface> parse_ifconfig(std::string_view text);

// `system_profiler SPThunderboltDataType -json`.
std::vector<ThunderboltPort> parse_thunderbolt(std::string_view json);
// `rdma_ctl status`.
std::optional<bool> parse_rdma_ctl(std::string_view text);
// `pmset -g`: minutes until sleep, 0 for never.
std::optional<std::int64_t> parse_pmset(std::string_view text);
// `sw_vers`: "26.2 (25C56)"; empty if it is not understood.
std::string parse_sw_vers(std::string_view text);
// `sysctl NAME ...`: "name: value" lines.
std::map<std::string, std::int64_t> parse_sysctl(std::string_view text);
// `nft list ruleset`: whether anything is dropped or refused.
bool parse_nft(std::string_view text);

// Lines "PID PARENT COMMAND": ranks whose parent is no sinew.
std::vector<RankProcess> parse_processes(std::string_view text);

// The report of `sinew doctor --probe-rdma`: lines "DEVICE active|down|trouble TEXT".
std::vector<RdmaDevice> parse_rdma_report(std::string_view text);

}  // namespace sinew
