#include "cluster/majority_lease.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr std::size_t kRoundsMax = 64;  // renewals whose answers still count

bool contains(const std::vector<NodeId>& ids, const NodeId& id) {
  return std::ranges::find(ids, id) != ids.end();
}

// Nodes that are in one of the two sets only.
std::size_t difference(const std::vector<NodeId>& a, const std::vector<NodeId>& b) {
  const auto missing = [](const std::vector<NodeId>& from, const std::vector<NodeId>& in) {
    return std::ranges::count_if(from, [&](const NodeId& id) { return !contains(in, id); });
  };
  return static_cast<std::size_t>(missing(a, b) + missing(b, a));
}

Time scaled(Time time, double factor) {
  return Time{static_cast<Time::rep>(static_cast<double>(time.count()) * factor)};
}

}  // namespace

MajorityLease::MajorityLease(Options options, LeaseRecord record, ClusterStore& store)
    : options_(options), record_(std::move(record)), store_(store), random_(options.seed) {}

void MajorityLease::start(Time now) {
  // What was promised before the restart is forgotten but for its term; a node that never promised
  // need not wait.
  started_ = now;
  silent_until_ = record_.term > 0 ? now + options_.timing.lease : now;
  next_campaign_ = now;
  next_tick_ = now;
}

Status MajorityLease::found() {
  LeaseRecord first;
  first.value.version = 1;
  first.state.voters = {options_.self};
  return save(first);
}

std::uint64_t MajorityLease::random() {
  // SplitMix64 (Steele, Lea, Flood 2014): back-off needs no better one.
  std::uint64_t z = (random_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

bool MajorityLease::is_voter(const NodeId& id) const {
  return contains(record_.state.voters, id);
}

bool MajorityLease::promised_to_another(Time now, const NodeId& candidate) const {
  return now < silent_until_ || (now < promised_until_ && promised_to_ != candidate);
}

void MajorityLease::grant(Time now, const NodeId& to) {
  promised_to_ = to;
  promised_until_ = now + options_.timing.lease;
}

Status MajorityLease::save(const LeaseRecord& next) {
  if (const Status status = store_.save(encode_record(next)); !status) {
    store_error_ = status.error();
    return status;
  }
  record_ = next;
  return {};
}

std::optional<Error> MajorityLease::take_store_error() {
  return std::exchange(store_error_, std::nullopt);
}

bool MajorityLease::holds(Time now) const {
  return role_ == Role::kHolder && now < lease_until_ && agreed_tag_.term == record_.term;
}

std::optional<NodeId> MajorityLease::holder(Time now) const {
  if (role_ == Role::kHolder) return holds(now) ? std::optional(options_.self) : std::nullopt;
  // A vote is no news of a holder: only its renewals are.
  if (holder_heard_ && now < *holder_heard_ + options_.timing.lease && now < promised_until_)
    return promised_to_;
  return std::nullopt;
}

Time MajorityLease::random_backoff() {
  const auto span = static_cast<std::uint64_t>(options_.timing.campaign_backoff.count());
  return Time{static_cast<Time::rep>(random() % std::max<std::uint64_t>(span, 1))};
}

void MajorityLease::back_off(Time now) {
  next_campaign_ = now + options_.timing.campaign_backoff + random_backoff();
}

void MajorityLease::wait_for_promise() {
  next_campaign_ = promised_until_ + random_backoff();
}

void MajorityLease::step_down(Time now) {
  role_ = Role::kFollower;
  votes_.clear();
  progress_.clear();
  sent_.clear();
  lease_until_ = {};
  back_off(now);
}

std::vector<Coordination::Outgoing> MajorityLease::tick(Time now,
                                                        const std::vector<NodeId>& members) {
  std::vector<Outgoing> out;
  members_ = members;
  if (role_ == Role::kHolder && (now >= lease_until_ || !voting_)) step_down(now);
  if (role_ == Role::kHolder) {
    if (now >= next_renew_) renew(now, out);
    next_tick_ = std::min(next_renew_, lease_until_);
    return out;
  }
  const bool eligible = voting_ && is_voter(options_.self);
  if (eligible && now >= next_campaign_ && !promised_to_another(now, options_.self)) ask(now, out);
  if (role_ == Role::kHolder) {
    next_tick_ = std::min(next_renew_, lease_until_);
  } else {
    const Time waits = promised_to_ == options_.self ? Time{} : promised_until_;
    next_tick_ =
        std::max({next_campaign_, silent_until_, waits, now + std::chrono::milliseconds{1}});
  }
  return out;
}

void MajorityLease::request_votes(LeaseMessage::Kind kind, std::uint64_t term,
                                  std::vector<Outgoing>& out) const {
  LeaseMessage message;
  message.kind = kind;
  message.term = term;
  message.sequence = sequence_;
  message.value = record_.value;
  for (const NodeId& voter : record_.state.voters)
    if (voter != options_.self) out.push_back({voter, message});
}

void MajorityLease::ask(Time now, std::vector<Outgoing>& out) {
  role_ = Role::kAsking;
  votes_ = {options_.self};
  ++sequence_;
  back_off(now);
  if (votes_.size() >= majority()) return campaign(now, out);
  request_votes(LeaseMessage::Kind::kAsk, std::max(record_.term, seen_term_) + 1, out);
}

void MajorityLease::campaign(Time now, std::vector<Outgoing>& out) {
  LeaseRecord next = record_;
  next.term = std::max(record_.term, seen_term_) + 1;
  next.vote = options_.self;
  if (!save(next)) return step_down(now);
  role_ = Role::kCandidate;
  grant(now, options_.self);
  votes_ = {options_.self};
  progress_.clear();
  progress_[options_.self] = {now, {}};
  sent_ = {{++sequence_, now}};
  if (votes_.size() >= majority()) return become_holder(now, out);
  request_votes(LeaseMessage::Kind::kVote, record_.term, out);
}

void MajorityLease::become_holder(Time now, std::vector<Outgoing>& out) {
  LeaseRecord next = record_;
  next.value = {record_.term, record_.value.version + 1};
  if (!save(next)) return step_down(now);
  role_ = Role::kHolder;
  holder_heard_ = now;
  for (auto& [id, progress] : progress_) progress.value = {};
  renew(now, out);
}

void MajorityLease::renew(Time now, std::vector<Outgoing>& out) {
  sent_.emplace_back(++sequence_, now);
  if (sent_.size() > kRoundsMax) sent_.pop_front();
  progress_[options_.self] = {now, record_.value};
  grant(now, options_.self);
  count_renewals();
  next_renew_ = now + options_.timing.renew_every;
  LeaseMessage message;
  message.kind = LeaseMessage::Kind::kRenew;
  message.term = record_.term;
  message.sequence = sequence_;
  message.value = record_.value;
  message.committed = agreed_tag_.term == record_.term ? agreed_tag_.version : 0;
  std::set<NodeId> receivers(members_.begin(), members_.end());
  receivers.insert(record_.state.voters.begin(), record_.state.voters.end());
  receivers.erase(options_.self);
  for (const NodeId& to : receivers) {
    message.state.reset();
    const auto it = progress_.find(to);
    message.stamp = it == progress_.end() ? Time{} : it->second.stamp;
    if (it == progress_.end() || it->second.value != record_.value) message.state = record_.state;
    out.push_back({to, message});
  }
}

void MajorityLease::count_renewals() {
  std::vector<Time> renewed;
  std::size_t agreeing = 0;
  for (const NodeId& voter : record_.state.voters) {
    const auto it = progress_.find(voter);
    if (it == progress_.end()) continue;
    renewed.push_back(it->second.renewed);
    if (it->second.value == record_.value) ++agreeing;
  }
  lease_until_ = {};
  if (renewed.size() < majority()) return;
  std::ranges::sort(renewed, std::greater<>{});
  lease_until_ =
      renewed[majority() - 1] + scaled(options_.timing.lease, 1.0 - 2.0 * options_.timing.drift);
  if (agreeing >= majority() && agreed_tag_ != record_.value) {
    agreed_ = record_.state;
    agreed_tag_ = record_.value;
    next_renew_ = next_tick_ = {};  // the others should know at once
  }
}

Status MajorityLease::compare_and_swap(Time now, ValueTag expected, ClusterState next) {
  if (!holds(now) || expected != record_.value || agreed_tag_ != record_.value)
    return fail(ErrorCode::kCancelled, "the cluster's state has changed, or another node holds it");
  if (next.voters.empty() || next.voters.size() > kVotersMax ||
      difference(next.voters, record_.state.voters) > 1)
    return fail(ErrorCode::kUsage, "voters change by one node at a time");
  LeaseRecord record = record_;
  ++record.value.version;
  record.state = std::move(next);
  SINEW_TRY(save(record));
  progress_[options_.self].value = record_.value;
  count_renewals();
  next_renew_ = next_tick_ = now;
  return {};
}

std::vector<Coordination::Outgoing> MajorityLease::received(Time now, const NodeId& from,
                                                            const LeaseMessage& message) {
  std::vector<Outgoing> out;
  switch (message.kind) {
    case LeaseMessage::Kind::kAsk:
      out.push_back({from, answer_ask(now, from, message)});
      break;
    case LeaseMessage::Kind::kVote:
      out.push_back({from, answer_vote(now, from, message)});
      break;
    case LeaseMessage::Kind::kRenew:
      out.push_back({from, answer_renew(now, from, message)});
      break;
    case LeaseMessage::Kind::kAskReply:
    case LeaseMessage::Kind::kVoteReply:
    case LeaseMessage::Kind::kRenewReply:
      on_reply(now, from, message, out);
      break;
  }
  return out;
}

LeaseMessage MajorityLease::answer_ask(Time now, const NodeId& from,
                                       const LeaseMessage& message) const {
  LeaseMessage reply;
  reply.kind = LeaseMessage::Kind::kAskReply;
  reply.sequence = message.sequence;
  reply.term = record_.term;
  reply.granted = voting_ && message.term > record_.term && message.value >= record_.value &&
                  !promised_to_another(now, from);
  return reply;
}

LeaseMessage MajorityLease::answer_vote(Time now, const NodeId& from, const LeaseMessage& message) {
  LeaseMessage reply;
  reply.kind = LeaseMessage::Kind::kVoteReply;
  reply.sequence = message.sequence;
  const bool again = message.term == record_.term && record_.vote == from;
  const bool allowed = voting_ && (message.term > record_.term || again) &&
                       message.value >= record_.value && !promised_to_another(now, from);
  if (allowed) {
    LeaseRecord next = record_;
    next.term = message.term;
    next.vote = from;
    if (again || save(next)) {
      reply.granted = true;
      if (role_ != Role::kFollower) step_down(now);
      grant(now, from);
      wait_for_promise();
    }
  }
  reply.term = record_.term;
  return reply;
}

LeaseMessage MajorityLease::answer_renew(Time now, const NodeId& from,
                                         const LeaseMessage& message) {
  LeaseMessage reply;
  reply.kind = LeaseMessage::Kind::kRenewReply;
  reply.sequence = message.sequence;
  reply.term = record_.term;
  reply.value = record_.value;
  // Two holders of one term cannot be; a peer that says so is not believed.
  const bool contradicts = message.term == record_.term && role_ == Role::kHolder;
  if (message.term < record_.term || contradicts || !voting_) return reply;
  LeaseRecord next = record_;
  if (message.term > record_.term) {
    next.term = message.term;
    next.vote = from;
  }
  if (message.state && message.value > record_.value) {
    next.value = message.value;
    next.state = *message.state;
  }
  if (next.term != record_.term || next.value != record_.value)
    if (!save(next)) return reply;
  if (role_ != Role::kFollower) step_down(now);
  grant(now, from);
  wait_for_promise();
  holder_heard_ = now;
  // Stamps of an earlier life are of another clock.
  if (message.stamp > started_ && message.stamp <= now)
    contact_ = std::max(contact_.value_or(message.stamp), message.stamp);
  if (record_.value.term == message.term && record_.value.version <= message.committed &&
      record_.value > agreed_tag_) {
    agreed_ = record_.state;
    agreed_tag_ = record_.value;
  }
  reply.granted = true;
  reply.stamp = now;
  reply.term = record_.term;
  reply.value = record_.value;
  return reply;
}

void MajorityLease::on_reply(Time now, const NodeId& from, const LeaseMessage& message,
                             std::vector<Outgoing>& out) {
  if (!message.granted && message.term > record_.term) {
    seen_term_ = std::max(seen_term_, message.term);
    if (role_ == Role::kHolder || role_ == Role::kCandidate) step_down(now);
    return;
  }
  if (!message.granted || !is_voter(from)) {
    if (message.granted && role_ == Role::kHolder) on_renew_reply(from, message);
    return;
  }
  switch (role_) {
    case Role::kFollower:
      break;
    case Role::kAsking:
      if (message.kind != LeaseMessage::Kind::kAskReply || message.sequence != sequence_) break;
      votes_.insert(from);
      if (votes_.size() >= majority() && !promised_to_another(now, options_.self))
        campaign(now, out);
      break;
    case Role::kCandidate:
      // A restarted candidate counts its rounds from the start again, but never its terms.
      if (message.kind != LeaseMessage::Kind::kVoteReply || message.sequence != sequence_ ||
          message.term != record_.term)
        break;
      votes_.insert(from);
      progress_[from].renewed = sent_.front().second;
      if (votes_.size() >= majority()) become_holder(now, out);
      break;
    case Role::kHolder:
      on_renew_reply(from, message);
      if (now >= next_renew_ && now < lease_until_) renew(now, out);
      break;
  }
}

void MajorityLease::on_renew_reply(const NodeId& from, const LeaseMessage& message) {
  if (message.kind != LeaseMessage::Kind::kRenewReply || message.term != record_.term) return;
  const auto sent =
      std::ranges::find(sent_, message.sequence, &std::pair<std::uint64_t, Time>::first);
  if (sent == sent_.end()) return;
  Progress& progress = progress_[from];
  if (sent->second < progress.renewed) return;  // overtaken by a later answer
  progress.renewed = sent->second;
  progress.value = message.value;
  progress.stamp = message.stamp;
  count_renewals();
}

}  // namespace sinew
