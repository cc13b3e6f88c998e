#include "agent/report.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "agent/hex.h"

namespace sinew {
namespace {

using nlohmann::json;

constexpr auto kReplace = json::error_handler_t::replace;

double milliseconds(Time time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string address_text(const Address& address) {
  return address.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", address.host, address.port)
             : fmt::format("[{}]:{}", address.host, address.port);
}

bool same_place(const Address& a, const Address& b) {
  return a.host == b.host && a.port == b.port;
}

Result<json> parse_report(const std::string& text) {
  json report = json::parse(text, nullptr, false);
  if (!report.is_object()) return fail(ErrorCode::kProtocol, "the agent's answer is no JSON");
  if (report.contains("error"))
    return fail(ErrorCode::kProtocol, "{}", report.value("error", std::string()));
  return Result<json>(std::move(report));
}

}  // namespace

std::string report_nodes(const NodeCore& core, Time now, const ClusterSecret& secret,
                         const std::map<std::string, std::uint64_t>& refusals) {
  json nodes = json::array();
  const std::optional<NodeId> coordinator = core.coordinator(now);
  const std::vector<MemberView> members = core.members();
  for (const MemberView& view : members) {
    const Member& member = view.member;
    json addresses = json::array();
    for (const Address& address : member.addresses)
      addresses.push_back(
          {{"address", address_text(address)}, {"kind", path_kind_name(address.kind)}});
    const bool self = &view == &members.front();
    nodes.push_back({{"id", to_hex(member.id.bytes)},
                     {"name", member.name},
                     {"self", self},
                     {"state", view.liveness == Liveness::kAlive ? "alive" : "suspect"},
                     {"incarnation", member.incarnation},
                     {"version", member.version},
                     {"memory_bytes", member.memory_bytes},
                     {"memory_available_bytes", member.memory_available_bytes},
                     {"coordinator", coordinator && *coordinator == member.id},
                     {"last_sign_ms", self ? 0 : milliseconds(now - view.last_sign)},
                     {"addresses", addresses}});
  }
  const json report{{"cluster", secret.cluster_name()},
                    {"cluster_name", secret.name},
                    {"term", core.term()},
                    {"nodes", nodes},
                    {"refusals", refusals}};
  return report.dump(2, ' ', false, kReplace) + "\n";
}

std::string report_links(const NodeCore& core, const std::vector<Hub::Path>& paths) {
  json links = json::array();
  const std::vector<MemberView> members = core.members();
  for (std::size_t i = 1; i < members.size(); ++i) {
    const Member& member = members[i].member;
    const std::optional<Address> used = core.path(member.id);
    for (const Address& address : member.addresses) {
      json link{{"node", to_hex(member.id.bytes)},
                {"name", member.name},
                {"address", address_text(address)},
                {"kind", path_kind_name(address.kind)},
                {"in_use", used && same_place(*used, address)},
                {"up", false},
                {"round_trip_ms", nullptr}};
      for (const Hub::Path& path : paths) {
        if (!path.dialled || path.peer != member.id || !same_place(path.address, address)) continue;
        link["up"] = true;
        if (path.round_trip) link["round_trip_ms"] = milliseconds(*path.round_trip);
      }
      links.push_back(std::move(link));
    }
  }
  return json{{"links", links}}.dump(2, ' ', false, kReplace) + "\n";
}

std::string report_error(const std::string& text) {
  return json{{"error", text}}.dump() + "\n";
}

Result<std::string> nodes_table(const std::string& text) {
  SINEW_ASSIGN(const json report, parse_report(text));
  std::string table = fmt::format("{:<10}{:<20}{:<9}{:>10}{:>12}  {}\n", "NODE", "NAME", "STATE",
                                  "MEMORY", "AVAILABLE", "ADDRESS");
  for (const json& node : report.value("nodes", json::array())) {
    const json addresses = node.value("addresses", json::array());
    table += fmt::format(
        "{:<10}{:<20}{:<9}{:>10}{:>12}  {}{}{}\n", node.value("id", std::string()).substr(0, 8),
        node.value("name", std::string()), node.value("state", std::string()),
        format_bytes(node.value("memory_bytes", std::uint64_t{0})),
        format_bytes(node.value("memory_available_bytes", std::uint64_t{0})),
        addresses.empty() ? std::string("-") : addresses[0].value("address", std::string()),
        node.value("self", false) ? " (this)" : "",
        node.value("coordinator", false) ? " coordinates" : "");
  }
  return table;
}

Result<std::string> links_table(const std::string& text) {
  SINEW_ASSIGN(const json report, parse_report(text));
  std::string table = fmt::format("{:<10}{:<20}{:<28}{:<12}{:>10}  {}\n", "NODE", "NAME", "ADDRESS",
                                  "KIND", "RTT", "STATE");
  for (const json& link : report.value("links", json::array())) {
    const json trip = link.value("round_trip_ms", json());
    table += fmt::format("{:<10}{:<20}{:<28}{:<12}{:>10}  {}\n",
                         link.value("node", std::string()).substr(0, 8),
                         link.value("name", std::string()), link.value("address", std::string()),
                         link.value("kind", std::string()),
                         trip.is_number() ? fmt::format("{:.2f} ms", trip.get<double>()) : "-",
                         link.value("in_use", false) ? "in use"
                         : link.value("up", false)   ? "up"
                                                     : "down");
  }
  return table;
}

std::string events_table(const std::string& lines) {
  std::string table;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const json event = json::parse(lines.substr(at, end - at), nullptr, false);
    at = end + 1;
    if (!event.is_object()) continue;  // a power cut in the middle of a line
    const std::int64_t time_ms = event.value("time_ms", std::int64_t{0});
    const std::time_t seconds = time_ms / 1000;
    std::tm local{};
    ::localtime_r(&seconds, &local);
    const std::string node = event.value("node", std::string());
    table += fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} {}{}{}: {}\n", local.tm_year + 1900,
                         local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                         event.value("kind", std::string()), node.empty() ? "" : " ", node,
                         event.value("text", std::string()));
  }
  return table;
}

}  // namespace sinew
