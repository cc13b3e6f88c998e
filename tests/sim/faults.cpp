// What goes wrong in a seed.
#include <fmt/format.h>

#include <algorithm>

#include "sim/world.h"

namespace sinew::sim {

void World::schedule_faults() {
  // Two at once in each seed, whatever comes besides.
  at(kFaultsBegin, [this] {
    start_fault();
    start_fault();
  });
  Time when = kFaultsBegin;
  while ((when += between(300ms, 3500ms)) < kFaultsEnd - 3s) at(when, [this] { start_fault(); });
  at(kFaultsEnd, [this] { heal_all(); });
}

void World::start_fault() {
  const std::size_t a = random_() % nodes_.size();
  std::size_t b = random_() % nodes_.size();
  if (b == a) b = (a + 1) % nodes_.size();
  const Time until = std::min(now_ + (chance() < 0.3 ? between(100ms, 1500ms) : between(2s, 16s)),
                              kFaultsEnd - 1ms);
  ++outcome_.faults;
  outcome_.faults_at_once = std::max(outcome_.faults_at_once, ++faults_now_);
  // Cuts and slow links are counted, so that faults may lie over each other.
  const auto over = [&](std::vector<std::pair<std::size_t, std::size_t>> links, int Link::*count) {
    for (const auto& [x, y] : links) ++(links_[x][y].*count);
    at(until, [this, links, count] {
      for (const auto& [x, y] : links) --(links_[x][y].*count);
      end_fault();
    });
  };
  const auto names = fmt::format("{}, {}", nodes_[a].member.name, nodes_[b].member.name);
  const auto seconds = std::chrono::duration<double>(until - now_).count();
  switch (random_() % 10) {
    case 0:
    case 1:
      crash(a);
      at(until, [this, a] {
        boot(a);
        end_fault();
      });
      break;
    case 2:
      pause(a);
      at(until, [this, a] {
        resume(a);
        end_fault();
      });
      break;
    case 3:
      say("one way cut {} for {:.1f} s", names, seconds);
      over({{a, b}}, &Link::cuts);
      break;
    case 4:
      say("cut {} for {:.1f} s", names, seconds);
      over({{a, b}, {b, a}}, &Link::cuts);
      break;
    case 5: {
      // A random half on either side; both ways, or one way only.
      const bool both = random_() % 3 != 0;
      const std::uint64_t side = random_();
      say("partition for {:.1f} s", seconds);
      std::vector<std::pair<std::size_t, std::size_t>> links;
      for (std::size_t x = 0; x < nodes_.size(); ++x)
        for (std::size_t y = 0; y < nodes_.size(); ++y)
          if (const bool from = (side >> x & 1) != 0; from != ((side >> y & 1) != 0))
            if (both || from) links.emplace_back(x, y);
      over(links, &Link::cuts);
      break;
    }
    case 6:
      say("slow {} for {:.1f} s", names, seconds);
      over({{a, b}, {b, a}}, &Link::slow);
      break;
    case 7: {
      say("loss for {:.1f} s", seconds);
      const double loss = chance() * 0.3;
      loss_ += loss;
      twice_ += loss;
      at(until, [this, loss] {
        loss_ -= loss;
        twice_ -= loss;
        end_fault();
      });
      break;
    }
    case 8:
      say("disk of {} fails for {:.1f} s", nodes_[a].member.name, seconds);
      nodes_[a].disk.fault =
          random_() % 2 == 0 ? Disk::Fault::kError : Disk::Fault::kErrorAfterWrite;
      at(until, [this, a] {
        if (!nodes_[a].disk.power_lost) nodes_[a].disk.fault = Disk::Fault::kNone;
        end_fault();
      });
      break;
    default:
      say("{} loses power at its next write", nodes_[a].member.name);
      nodes_[a].disk.fault =
          random_() % 2 == 0 ? Disk::Fault::kPowerBefore : Disk::Fault::kPowerAfter;
      at(until, [this, a] {
        nodes_[a].disk.fault = Disk::Fault::kNone;
        boot(a);
        end_fault();
      });
      break;
  }
  if (random_() % 4 == 0) set_rate(b, 1.0 + (chance() - 0.5) * 0.019);
}

// From here on all must come right again; one machine may stay dead.
void World::heal_all() {
  say("the faults stop");
  const bool bury = nodes_.size() > 3 && random_() % 2 == 0;
  const std::size_t dead = random_() % nodes_.size();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].disk.fault = Disk::Fault::kNone;
    resume(i);
    if (bury && i == dead) {
      crash(i);
      nodes_[i].dead_for_good = true;
    }
    if (settings_.mutation == Mutation::kOldDisks) {
      crash(i);
      nodes_[i].disk.content = nodes_[i].old_disk;
    }
    boot(i);
  }
  if (settings_.mutation == Mutation::kDeafNode) {
    const std::size_t deaf = (dead + 1) % nodes_.size();
    for (auto& row : links_) row[deaf].cuts = 1;
  }
}

}  // namespace sinew::sim
