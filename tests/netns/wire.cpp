// A slow, lossy network in user space, for kernels without netem: one TUN device in each network
// namespace, joined by this process, which holds every packet for as long as the cable would.
//
//   sinew-wire [--delay-us D] [--loss P] [--rate-mbit R] [--mtu M] [--seed S] NAMESPACE=ADDRESS...
//
// Says "ready" once all devices are up. Commands on standard input, a line each, answered by "ok"
// or "error: why":
//   delay D          microseconds each way, on top of what this program itself costs
//   loss P           of each packet, 0..1
//   cut A B          nothing passes between the namespaces A and B
//   cut A > B        nothing passes from A to B, without a sign
//   isolate A        nothing passes to or from A
//   mend             everything passes
// Ends with its standard input.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <iostream>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr const char* kDevice = "wire0";
constexpr std::size_t kPacketMax = 65536;
// As a switch's buffer: what is beyond it is dropped.
constexpr std::size_t kHeldMax = 8192;
constexpr unsigned char kIpv4 = 4;

[[noreturn]] void stop(const std::string& what) {
  std::cerr << "sinew-wire: " << what << ": " << std::strerror(errno) << '\n';
  std::exit(1);
}

struct Packet {
  Clock::time_point due;
  std::size_t to;
  std::vector<char> bytes;
};

struct Port {
  std::string name;     // of the namespace
  std::string address;  // dotted IPv4
  in_addr_t raw = 0;
  int tun = -1;
  Clock::time_point free_at;  // when the cable out of it has sent what it was given
};

void set_flags(const ifreq& wanted, int mtu, in_addr_t address) {
  const int any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) stop("socket");
  ifreq request = wanted;
  auto* inet = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  *inet = {};
  inet->sin_family = AF_INET;
  inet->sin_addr.s_addr = address;
  if (::ioctl(any, SIOCSIFADDR, &request) != 0) stop("SIOCSIFADDR");
  inet->sin_addr.s_addr = ::inet_addr("255.255.255.0");
  if (::ioctl(any, SIOCSIFNETMASK, &request) != 0) stop("SIOCSIFNETMASK");
  request.ifr_mtu = mtu;
  if (::ioctl(any, SIOCSIFMTU, &request) != 0) stop("SIOCSIFMTU");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(any, SIOCSIFFLAGS, &request) != 0) stop("SIOCSIFFLAGS");
  ::close(any);
}

// A device in the port's namespace; this process then stays where it was.
void open_port(Port& port, int mtu) {
  const int home = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = ::open(("/run/netns/" + port.name).c_str(), O_RDONLY | O_CLOEXEC);
  if (there < 0) stop("namespace " + port.name);
  if (::setns(there, CLONE_NEWNET) != 0) stop("setns " + port.name);
  port.tun = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (port.tun < 0) stop("/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(port.tun, TUNSETIFF, &request) != 0) stop("TUNSETIFF in " + port.name);
  set_flags(request, mtu, port.raw);
  if (::setns(home, CLONE_NEWNET) != 0) stop("setns back");
  ::close(there);
  ::close(home);
}

class Wire {
 public:
  struct Options {
    double delay_us = 0;
    double loss = 0;
    double rate_mbit = 0;  // of each port, outwards; 0: without limit
    int mtu = 9000;
    std::uint64_t seed = 1;
  };

  Wire(std::vector<Port> ports, const Options& options)
      : ports_(std::move(ports)), options_(options), random_(options.seed) {
    for (Port& port : ports_) open_port(port, options.mtu);
  }

  void run() {
    std::cout << "ready" << std::endl;
    while (!over_) {
      wait();
      for (std::size_t from = 0; from < ports_.size(); ++from) read_port(from);
      deliver();
    }
  }

 private:
  void wait() {
    std::vector<pollfd> watched{{STDIN_FILENO, POLLIN, 0}};
    for (const Port& port : ports_) watched.push_back({port.tun, POLLIN, 0});
    timespec rest{1, 0};
    if (!held_.empty()) {
      const auto left = std::chrono::duration_cast<nanoseconds>(held_.front().due - Clock::now());
      rest = {0, std::clamp<long>(left.count(), 0, 999'999'999)};
    }
    if (::ppoll(watched.data(), watched.size(), &rest, nullptr) < 0 && errno != EINTR)
      stop("ppoll");
    if (watched.front().revents != 0) read_commands();
  }

  void read_port(std::size_t from) {
    Port& port = ports_[from];
    while (true) {
      const ssize_t got = ::read(port.tun, buffer_.data(), buffer_.size());
      if (got <= 0) return;
      const auto size = static_cast<std::size_t>(got);
      if (size < sizeof(std::uint32_t) * 5 || static_cast<unsigned char>(buffer_[0]) >> 4 != kIpv4)
        continue;
      in_addr_t to_address = 0;
      std::memcpy(&to_address, buffer_.data() + 16, sizeof to_address);  // RFC 791, 3.1
      for (std::size_t to = 0; to < ports_.size(); ++to)
        if (ports_[to].raw == to_address) take(from, to, size);
    }
  }

  void take(std::size_t from, std::size_t to, std::size_t size) {
    if (cut_.contains({from, to}) || held_.size() >= kHeldMax) return;
    if (options_.loss > 0 && std::uniform_real_distribution<>()(random_) < options_.loss) return;
    Port& port = ports_[from];
    auto sent = Clock::now();
    if (options_.rate_mbit > 0) {
      const double us = static_cast<double>(size) * 8 / options_.rate_mbit;
      sent = std::max(sent, port.free_at) + nanoseconds(static_cast<long>(us * 1000));
      port.free_at = sent;
    }
    Packet packet{sent + nanoseconds(static_cast<long>(options_.delay_us * 1000)),
                  to,
                  {buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(size)}};
    auto place = held_.end();
    while (place != held_.begin() && std::prev(place)->due > packet.due) --place;
    held_.insert(place, std::move(packet));
  }

  void deliver() {
    const auto now = Clock::now();
    for (; !held_.empty() && held_.front().due <= now; held_.pop_front()) {
      const Packet& packet = held_.front();
      // A full device drops it, as a full cable would.
      static_cast<void>(!::write(ports_[packet.to].tun, packet.bytes.data(), packet.bytes.size()));
    }
  }

  void read_commands() {
    std::array<char, 256> bytes{};
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got <= 0) {
      over_ = true;
      return;
    }
    typed_.append(bytes.data(), static_cast<std::size_t>(got));
    for (auto end = typed_.find('\n'); end != std::string::npos; end = typed_.find('\n')) {
      const std::string error = obey(typed_.substr(0, end));
      std::cout << (error.empty() ? "ok" : "error: " + error) << std::endl;
      typed_.erase(0, end + 1);
    }
  }

  std::optional<std::size_t> port_named(const std::string& name) const {
    for (std::size_t port = 0; port < ports_.size(); ++port)
      if (ports_[port].name == name) return port;
    return std::nullopt;
  }

  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "delay") return words >> options_.delay_us ? "" : "delay in microseconds";
    if (verb == "loss") return words >> options_.loss ? "" : "loss 0..1";
    if (verb == "mend") {
      cut_.clear();
      return "";
    }
    std::string first, second;
    words >> first >> second;
    const bool one_way = second == ">";
    if (one_way) words >> second;
    const auto a = port_named(first);
    if (verb == "isolate" && a) {
      for (std::size_t other = 0; other < ports_.size(); ++other)
        cut_.insert({std::pair{*a, other}, std::pair{other, *a}});
      return "";
    }
    const auto b = port_named(second);
    if (verb != "cut" || !a || !b)
      return "cut A B | cut A > B | isolate A | mend | delay D | loss P";
    cut_.insert({*a, *b});
    if (!one_way) cut_.insert({*b, *a});
    return "";
  }

  std::vector<Port> ports_;
  Options options_;
  std::mt19937_64 random_;
  std::set<std::pair<std::size_t, std::size_t>> cut_;  // from, to
  std::deque<Packet> held_;                            // by due
  std::vector<char> buffer_ = std::vector<char>(kPacketMax);
  std::string typed_;
  bool over_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A slow, lossy network between network namespaces, in user space");
  Wire::Options options;
  std::vector<std::string> places;
  app.add_option("--delay-us", options.delay_us, "each way")->check(CLI::NonNegativeNumber);
  app.add_option("--loss", options.loss, "of each packet")->check(CLI::Range(0.0, 1.0));
  app.add_option("--rate-mbit", options.rate_mbit, "of each port")->check(CLI::NonNegativeNumber);
  app.add_option("--mtu", options.mtu)->check(CLI::Range(576, 65535));
  app.add_option("--seed", options.seed);
  app.add_option("places", places, "NAMESPACE=ADDRESS")->required();
  CLI11_PARSE(app, argc, argv);
  std::vector<Port> ports;
  for (const std::string& place : places) {
    const auto equal = place.find('=');
    Port port;
    if (equal != std::string::npos) {
      port.name = place.substr(0, equal);
      port.address = place.substr(equal + 1);
    }
    if (port.name.empty() || ::inet_pton(AF_INET, port.address.c_str(), &port.raw) != 1) {
      std::cerr << "sinew-wire: '" << place << "' is not NAMESPACE=ADDRESS\n";
      return 2;
    }
    ports.push_back(std::move(port));
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_TIMERSLACK, 1);  // the kernel would add 50 us to every delay
  Wire(std::move(ports), options).run();
}
