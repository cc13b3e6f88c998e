#include "doctor/parse.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

namespace sinew {
namespace {

using Json = nlohmann::json;

// Of any list that a tool prints; more is cut off.
constexpr std::size_t kEntriesMax = 256;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Takes the first word off.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// The elements of `json[key]` that are objects.
std::vector<Json> objects_at(const Json& json, const char* key) {
  std::vector<Json> found;
  if (!json.is_object() || !json.contains(key) || !json[key].is_array()) return found;
  for (const Json& entry : json[key])
    if (entry.is_object() && found.size() < kEntriesMax) found.push_back(entry);
  return found;
}

bool is_sinew(std::string_view command) {
  const std::string_view program = take_word(command);
  return program.substr(program.rfind('/') + 1) == "sinew";
}

// The file of another Mac's entry has a domain and no mode; a disk or a hub has a mode.
void add_peer(const Json& bus, ThunderboltPort& port) {
  for (const Json& item : objects_at(bus, "_items")) {
    if (text_at(item, "domain_uuid_key").empty()) continue;
    port.peer_domain = text_at(item, "domain_uuid_key");
    port.peer_name = text_at(item, "_name");
    return;
  }
}

}  // namespace

std::optional<std::int64_t> parse_number(std::string_view text) {
  text = trimmed(text);
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_meminfo(std::string_view text, std::string_view key) {
  for (std::string_view line : lines_of(text)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.substr(0, colon) != key) continue;
    const auto kib = parse_number(line.substr(colon + 1));
    if (!kib || *kib < 0 || *kib > (std::int64_t{1} << 50)) return std::nullopt;
    return static_cast<std::uint64_t>(*kib) * 1024;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_memory_limit(std::string_view text) {
  const auto number = parse_number(text);
  // Control groups of version 1 write "no limit" as nearly 2^63.
  if (!number || *number <= 0 || *number > (std::int64_t{1} << 60)) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

std::vector<NetworkInterface> parse_ip_addr(std::string_view json) {
  std::vector<NetworkInterface> found;
  const Json parsed = Json::parse(json, nullptr, false);
  for (const Json& entry : objects_at(Json{{"all", parsed}}, "all")) {
    NetworkInterface interface;
    interface.name = text_at(entry, "ifname");
    interface.mtu = number_at(entry, "mtu");
    if (entry.contains("flags") && entry["flags"].is_array())
      for (const Json& flag : entry["flags"]) interface.up = interface.up || flag == "LOWER_UP";
    for (const Json& address : objects_at(entry, "addr_info"))
      if (text_at(address, "family") == "inet")
        interface.addresses.push_back(text_at(address, "local"));
    found.push_back(std::move(interface));
  }
  return found;
}

std::vector<NetworkInterface> parse_ifconfig(std::string_view text) {
  std::vector<NetworkInterface> found;
  for (std::string_view line : lines_of(text)) {
    const bool begins = !line.empty() && line.front() != '\t' && line.front() != ' ';
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    if (begins && word.ends_with(':') && found.size() < kEntriesMax) {
      NetworkInterface interface;
      interface.name = word.substr(0, word.size() - 1);
      const std::size_t mtu = rest.find("mtu ");
      if (mtu != std::string_view::npos)
        interface.mtu = parse_number(rest.substr(mtu + 4)).value_or(0);
      found.push_back(std::move(interface));
    } else if (!begins && !found.empty()) {
      if (word == "inet") found.back().addresses.emplace_back(take_word(rest));
      if (word == "member:") found.back().members.emplace_back(take_word(rest));
      if (word == "status:") found.back().up = take_word(rest) == "active";
    }
  }
  return found;
}

std::vector<ThunderboltPort> parse_thunderbolt(std::string_view json) {
  std::vector<ThunderboltPort> ports;
  const Json parsed = Json::parse(json, nullptr, false);
  for (const Json& bus : objects_at(parsed, "SPThunderboltDataType")) {
    for (const auto& [key, socket] : bus.items()) {
      if (!key.starts_with("receptacle_") || !socket.is_object()) continue;
      ThunderboltPort port;
      port.receptacle = text_at(socket, "receptacle_id_key");
      port.domain = text_at(bus, "domain_uuid_key");
      port.connected = text_at(socket, "receptacle_status_key") == "receptacle_connected";
      const std::string speed = text_at(socket, "current_speed_key");  // "Up to 120 Gb/s"
      port.gbps = parse_number(std::string_view(speed).substr(
                                   std::min(speed.find_first_of("0123456789"), speed.size())))
                      .value_or(0);
      add_peer(bus, port);
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::optional<bool> parse_rdma_ctl(std::string_view text) {
  if (trimmed(text) == "enabled") return true;
  if (trimmed(text) == "disabled") return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_pmset(std::string_view text) {
  for (std::string_view line : lines_of(text))
    if (take_word(line) == "sleep") return parse_number(take_word(line));
  return std::nullopt;
}

std::string parse_sw_vers(std::string_view text) {
  std::string version;
  std::string build;
  for (std::string_view line : lines_of(text)) {
    const std::string_view key = take_word(line);
    if (key == "ProductVersion:") version = trimmed(line);
    if (key == "BuildVersion:") build = trimmed(line);
  }
  return version.empty() || build.empty() ? std::string() : version + " (" + build + ")";
}

std::map<std::string, std::int64_t> parse_sysctl(std::string_view text) {
  std::map<std::string, std::int64_t> values;
  for (const std::string_view line : lines_of(text)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (const auto value = parse_number(line.substr(colon + 1)))
      values.emplace(line.substr(0, colon), *value);
  }
  return values;
}

bool parse_nft(std::string_view text) {
  for (const char* word : {"policy drop", " drop", " reject"})
    if (text.find(word) != std::string_view::npos) return true;
  return false;
}

std::vector<RankProcess> parse_processes(std::string_view text) {
  std::set<std::int64_t> ours;
  std::vector<RankProcess> ranks;
  for (std::string_view line : lines_of(text)) {
    const auto pid = parse_number(take_word(line));
    const auto parent = parse_number(take_word(line));
    if (!pid || !parent || !is_sinew(line)) continue;
    ours.insert(*pid);
    take_word(line);
    if (take_word(line) == "rank" && ranks.size() < kEntriesMax) ranks.push_back({*pid, *parent});
  }
  std::erase_if(ranks, [&](const RankProcess& rank) { return ours.contains(rank.parent); });
  return ranks;
}

std::vector<RdmaDevice> parse_rdma_report(std::string_view text) {
  std::vector<RdmaDevice> devices;
  for (std::string_view line : lines_of(text)) {
    RdmaDevice device;
    device.name = take_word(line);
    const std::string_view state = take_word(line);
    device.active = state == "active";
    if (state == "trouble") device.trouble = trimmed(line);
    const bool known = device.active || state == "down" || !device.trouble.empty();
    if (known && devices.size() < kEntriesMax) devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace sinew
