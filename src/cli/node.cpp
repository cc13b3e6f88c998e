#include "cli/node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "agent/control_socket.h"
#include "agent/events.h"
#include "agent/report.h"
#include "cli/interrupt.h"

namespace sinew {
namespace {

constexpr std::size_t kSecretBytesMax = 1024;
constexpr std::chrono::seconds kAnswerMax{5};

Result<StateFolder> open_state(const std::string& given) {
  if (!given.empty()) return StateFolder::open(given);
  SINEW_ASSIGN(const std::string path, StateFolder::default_path());
  return StateFolder::open(path);
}

Result<std::string> read_standard_input() {
  std::string text;
  std::array<char, kSecretBytesMax> buffer{};
  while (text.find('\n') == std::string::npos && text.size() < kSecretBytesMax) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR && interrupts() == 0) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Never from the command line, which every user of the machine can read.
Result<ClusterSecret> read_secret(const std::string& file) {
  std::string text;
  const char* variable = std::getenv("SINEW_SECRET");
  if (!file.empty() && file != "-") {
    SINEW_ASSIGN(const auto bytes, read_private_file(file, kSecretBytesMax));
    if (!bytes) return fail(ErrorCode::kNotFound, "there is no file {}", file);
    text = *bytes;
  } else if (file.empty() && variable != nullptr) {
    text = variable;
  } else {
    if (::isatty(STDIN_FILENO) == 1) fmt::print(stderr, "join token: ");
    SINEW_ASSIGN(text, read_standard_input());
  }
  const std::size_t end = text.find_first_of("\r\n ");
  return parse_token(std::string_view(text).substr(0, end));
}

Result<std::string> ask(const ClusterShowFlags& flags, const std::string& request) {
  SINEW_ASSIGN(const StateFolder folder, open_state(flags.state));
  return ask_agent(folder.file(kControlSocketName), request, kAnswerMax);
}

}  // namespace

Status cluster_create_command(const ClusterCreateFlags& flags) {
  SINEW_ASSIGN(StateFolder folder, open_state(flags.state));
  SINEW_TRY(folder.lock());
  SINEW_ASSIGN(const auto known, load_secret(folder));
  if (known)
    return fail(ErrorCode::kUsage, "this machine is in the cluster {} already; its secret is in {}",
                known->cluster_name().substr(0, 8), folder.file("cluster"));
  SINEW_ASSIGN(ClusterSecret secret, draw_secret(flags.name));
  secret.founder = true;
  SINEW_TRY(save_secret(folder, secret));
  fmt::print("{}\n", secret.token());
  fmt::print(stderr,
             "Above is the join token of the cluster '{}'; whoever has it may join. On this "
             "machine: sinew node. On the others: sinew node --join HOST, and the token on "
             "standard input.\n",
             secret.name);
  return {};
}

Status node_command(const NodeFlags& flags) {
  watch_interrupts();
  AgentOptions options;
  options.state = flags.state;
  options.listen = flags.listen;
  options.discovers = !flags.no_discovery;
  options.version = SINEW_VERSION;
  if (flags.port < 0 || flags.port > 65535)
    return fail(ErrorCode::kUsage, "--port {} is outside 0 to 65535", flags.port);
  options.port = static_cast<std::uint16_t>(flags.port);
  for (const std::string& peer : flags.peers) {
    SINEW_ASSIGN(Endpoint endpoint, resolve_endpoint(peer));
    options.peers.push_back(std::move(endpoint));
  }
  if (!flags.join.empty()) {
    SINEW_ASSIGN(Endpoint endpoint, resolve_endpoint(flags.join));
    options.peers.push_back(std::move(endpoint));
  }
  // Without a host to join, discovery finds one.
  if (!flags.join.empty() || !flags.secret_file.empty()) {
    SINEW_ASSIGN(options.joins, read_secret(flags.secret_file));
  }
  SINEW_ASSIGN(const auto agent, Agent::create(std::move(options)));
  return agent->run([] { return interrupts() > 0; });
}

Status nodes_command(const ClusterShowFlags& flags) {
  SINEW_ASSIGN(const std::string report, ask(flags, "nodes"));
  SINEW_ASSIGN(const std::string table, nodes_table(report));
  fmt::print("{}", flags.json ? report : table);
  return {};
}

Status links_command(const ClusterShowFlags& flags) {
  SINEW_ASSIGN(const std::string report, ask(flags, "links"));
  SINEW_ASSIGN(const std::string table, links_table(report));
  fmt::print("{}", flags.json ? report : table);
  return {};
}

Status events_command(const ClusterShowFlags& flags) {
  SINEW_ASSIGN(const StateFolder folder, open_state(flags.state));
  SINEW_ASSIGN(const std::string lines, read_events(folder));
  fmt::print("{}", flags.json ? lines : events_table(lines));
  return {};
}

}  // namespace sinew
