// sinew serve under streams while its ranks are killed again and again: counts hung clients, lost
// streams and texts that differ from the undisturbed ones by a byte. Exit status 1 if there is one.
//
//   churn PROGRAM MODEL [GENERATIONS [SEED [LINK]]]
//
// bench/churn.sh runs a thousand.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <thread>

#include "cluster/live_program.h"

namespace sinew::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr int kClients = 8;
constexpr int kRequests = 8;  // different ones
constexpr milliseconds kStartLimit{30000};
// No answer by then: the client hangs.
constexpr milliseconds kPatience{60000};

enum class Outcome { kWhole, kHung, kLost };
struct Text {
  Outcome outcome = Outcome::kLost;
  std::string text;
};

// Half of them greedy, half drawn with a seed and penalties.
std::string request(int index) {
  nlohmann::json body;
  body["messages"] = {
      {{"role", "user"}, {"content", fmt::format("Tell me story number {} about a fox.", index)}}};
  body["stream"] = true;
  body["ignore_eos"] = true;
  body["max_tokens"] = 64 + 8 * index;
  body["temperature"] = index % 2;
  body["seed"] = index;
  if (index % 2 != 0) body["repeat_penalty"] = 1.1;
  const std::string text = body.dump();
  return "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

// The text of a stream that came to its end; nothing of one that did not.
Text text_of(const std::string& bytes) {
  Text result;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: ")) continue;
    if (line.starts_with("data: [DONE]")) {
      result.outcome = Outcome::kWhole;
      continue;
    }
    const auto event = nlohmann::json::parse(line.substr(6), nullptr, false);
    if (event.is_discarded() || event.contains("error")) return {Outcome::kLost, line};
    for (const auto& choice : event["choices"]) result.text += choice["delta"].value("content", "");
  }
  return result;
}

Text ask(int port, int index) {
  const auto deadline = Clock::now() + kPatience;
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string bytes;
  bool hung = false;
  const std::string sent = request(index);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(client, sent.data(), sent.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(sent.size())) {
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
      pollfd waiting{client, POLLIN, 0};
      hung = left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) <= 0;
      char buffer[4096];
      const ssize_t got = hung ? 0 : ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      bytes.append(buffer, static_cast<std::size_t>(got));
    }
  }
  ::close(client);
  if (hung) return {Outcome::kHung, {}};
  return text_of(bytes);
}

struct Holdings {
  std::size_t descriptors = 0;
  long resident_kib = 0;
};
Holdings holdings_of(pid_t process) {
  Holdings held;
  const std::string folder = "/proc/" + std::to_string(process);
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder + "/fd", error), end; !error && it != end;
       it.increment(error))
    ++held.descriptors;
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) held.resident_kib = std::stol(line.substr(6));
  return held;
}
Holdings sum_of(const std::set<pid_t>& processes) {
  Holdings sum;
  for (const pid_t process : processes) {
    const Holdings held = holdings_of(process);
    sum.descriptors += held.descriptors;
    sum.resident_kib += held.resident_kib;
  }
  return sum;
}

// How many epochs have come up after a loss.
std::size_t times_mended(const std::string& err) {
  std::size_t count = 0;
  for (std::size_t at = err.find(" serves, "); at != std::string::npos;
       at = err.find(" serves, ", at + 1))
    ++count;
  return count;
}

double percentile(std::vector<double> sorted, double part) {
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(part * static_cast<double>(sorted.size())))];
}

int churn(const std::string& binary, const std::string& model, int generations, unsigned seed,
          const std::string& link) {
  LiveProgram server({binary, "serve", model, "--ranks", std::to_string(kRanks), "--link", link,
                      "--port", "0", "--recover-exactly", "--verbose"});
  std::smatch url;
  std::string err;
  const bool up = server.wait_until(
      [&] {
        err = server.err();
        return std::regex_search(err, url, std::regex(R"(listening on http://[^\n]*:(\d+))"));
      },
      kStartLimit);
  if (!up) {
    fmt::print(stderr, "the server did not come up: {}\n", server.err());
    return 1;
  }
  const int port = std::stoi(url[1]);
  std::vector<std::string> undisturbed;
  for (int index = 0; index < kRequests; ++index) {
    const Text text = ask(port, index);
    if (text.outcome != Outcome::kWhole || text.text.empty()) {
      fmt::print(stderr, "request {} was not answered undisturbed: {}\n", index, text.text);
      return 1;
    }
    undisturbed.push_back(text.text);
  }
  const Holdings server_before = holdings_of(server.pid());
  const Holdings ranks_before = sum_of(server.descendants());

  std::atomic<int> next{0};
  std::atomic<int> whole{0};
  std::atomic<int> hung{0};
  std::atomic<int> lost{0};
  std::atomic<int> wrong{0};
  std::atomic<int> clients_left{kClients};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&] {
      for (int number = next++; number < generations; number = next++) {
        const int index = number % kRequests;
        const Text text = ask(port, index);
        if (text.outcome == Outcome::kHung) ++hung;
        if (text.outcome == Outcome::kLost) ++lost;
        if (text.outcome == Outcome::kLost) fmt::print(stderr, "lost: {}\n", text.text);
        if (text.outcome == Outcome::kWhole) ++whole;
        if (text.outcome == Outcome::kWhole &&
            text.text != undisturbed[static_cast<std::size_t>(index)]) {
          ++wrong;
          fmt::print(stderr, "wrong: {}\nright: {}\n", text.text,
                     undisturbed[static_cast<std::size_t>(index)]);
        }
      }
      --clients_left;
    });

  std::mt19937 random(seed);
  std::vector<double> seconds_to_serve;
  int kills = 0;
  bool mends = true;
  while (clients_left > 0 && mends) {
    // Between two kills one answer comes to its end, or a slow machine would never get anywhere;
    // the next one is hit anywhere.
    const int ended = whole + lost;
    server.wait_until([&] { return clients_left == 0 || whole + lost > ended; }, kPatience);
    const milliseconds pause(random() % 700);
    server.wait_until([&] { return clients_left == 0; }, pause);
    if (clients_left == 0) break;
    const std::size_t mended = times_mended(server.err());
    const auto killed_at = Clock::now();
    if (::kill(server.ranks().at(static_cast<int>(random() % kRanks)), SIGKILL) != 0) break;
    ++kills;
    mends = server.wait_until([&] { return times_mended(server.err()) > mended; }, kPatience);
    seconds_to_serve.push_back(std::chrono::duration<double>(Clock::now() - killed_at).count());
  }
  for (std::thread& client : clients) client.join();
  const Holdings server_after = holdings_of(server.pid());
  const Holdings ranks_after = sum_of(server.descendants());

  if (!mends) fmt::print(stderr, "the server does not mend: {}\n", server.err());
  fmt::print("{} generations over {}, seed {}, {} ranks killed\n", generations, link, seed, kills);
  fmt::print("whole {}, hung clients {}, lost streams {}, wrong texts {}\n", whole, hung, lost,
             wrong);
  fmt::print("seconds from the kill to serving again: p50 {:.2f}, p99 {:.2f}, max {:.2f}\n",
             percentile(seconds_to_serve, 0.5), percentile(seconds_to_serve, 0.99),
             percentile(seconds_to_serve, 1));
  fmt::print("server: descriptors {} -> {}, resident {} -> {} KiB\n", server_before.descriptors,
             server_after.descriptors, server_before.resident_kib, server_after.resident_kib);
  fmt::print("ranks: descriptors {} -> {}, resident {} -> {} KiB\n", ranks_before.descriptors,
             ranks_after.descriptors, ranks_before.resident_kib, ranks_after.resident_kib);
  kill(server.pid(), SIGTERM);
  if (!server.wait_for_exit(milliseconds(10000))) {
    fmt::print(stderr, "the server does not stop\n");
    return 1;
  }
  return whole == generations && wrong == 0 && kills > 0 && mends &&
                 server_after.descriptors <= server_before.descriptors
             ? 0
             : 1;
}

}  // namespace
}  // namespace sinew::test

int main(int argc, char** argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  if (given.size() < 2 || given.size() > 5) {
    fmt::print(stderr, "usage: churn PROGRAM MODEL [GENERATIONS [SEED [LINK]]]\n");
    return 2;
  }
  const int generations = given.size() > 2 ? std::stoi(given[2]) : 1000;
  const auto seed = static_cast<unsigned>(given.size() > 3 ? std::stoul(given[3]) : 1);
  return sinew::test::churn(given[0], given[1], generations, seed,
                            given.size() > 4 ? given[4] : "shm");
}
