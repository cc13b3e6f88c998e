#include "cluster/message.h"

#include <algorithm>

#include "base/limits.h"
#include "base/wire.h"

namespace sinew {
namespace {

constexpr std::uint32_t kMessageMagic = 0x4c434e53;  // "SNCL"
constexpr std::uint32_t kRecordMagic = 0x52434e53;   // "SNCR"
constexpr std::size_t kReasonMax = 512;

// A WireReader that also keeps whether every value was within its limits.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : wire_(bytes) {}

  template <typename T>
  T number() {
    return wire_.get<T>();
  }
  bool flag() {
    const auto value = wire_.get<std::uint8_t>();
    require(value <= 1);
    return value == 1;
  }
  template <typename T>
  T choice(int count) {
    const auto value = wire_.get<std::uint8_t>();
    require(value < count);
    return value < count ? static_cast<T>(value) : T{};
  }
  // A count of things that follow; 0 if it is beyond the limit.
  std::size_t count(std::size_t max) {
    const auto value = wire_.get<std::uint32_t>();
    require(value <= max);
    return good_ ? value : 0;
  }
  // Such texts reach terminals and logs.
  std::string text(std::size_t max) {
    std::string value = wire_.get_string();
    require(value.size() <= max && std::ranges::all_of(value, [](char c) {
              return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
            }));
    return value;
  }
  template <typename Id>
  Id id() {
    Id value;
    for (auto& byte : value.bytes) byte = wire_.get<std::uint8_t>();
    return value;
  }
  void require(bool condition) { good_ = good_ && condition; }
  Status status(std::string_view what) const {
    SINEW_TRY(wire_.status(what));
    if (!good_) return fail(ErrorCode::kProtocol, "a {} message is outside its limits", what);
    return {};
  }

 private:
  WireReader wire_;
  bool good_ = true;
};

template <typename Id>
void put_id(WireWriter& w, const Id& id) {
  for (const auto byte : id.bytes) w.put(byte);
}
void put_count(WireWriter& w, std::size_t count) {
  w.put(static_cast<std::uint32_t>(count));
}

void put(WireWriter& w, const Member& m) {
  put_id(w, m.id);
  w.put(m.name).put(m.incarnation).put(m.nonce).put(m.wire_version).put(m.version);
  put_count(w, m.addresses.size());
  for (const Address& a : m.addresses) w.put(a.kind).put(a.rdma).put(a.host).put(a.port);
  w.put(m.memory_bytes).put(m.memory_available_bytes);
  put_count(w, m.models.size());
  for (const ModelId& id : m.models) put_id(w, id);
}
Member get_member(Reader& r) {
  Member m;
  m.id = r.id<NodeId>();
  r.require(!m.id.none());
  m.name = r.text(kMemberNameMax);
  m.incarnation = r.number<std::uint64_t>();
  m.nonce = r.number<std::uint64_t>();
  m.wire_version = r.number<std::uint32_t>();
  m.version = r.text(kMemberNameMax);
  for (std::size_t n = r.count(kMemberAddressesMax); n > 0; --n) {
    Address a;
    a.kind = r.choice<PathKind>(kPathKindCount);
    a.rdma = r.flag();
    a.host = r.text(kMemberHostMax);
    a.port = r.number<std::uint16_t>();
    m.addresses.push_back(std::move(a));
  }
  m.memory_bytes = r.number<std::uint64_t>();
  m.memory_available_bytes = r.number<std::uint64_t>();
  for (std::size_t n = r.count(kMemberModelsMax); n > 0; --n) m.models.push_back(r.id<ModelId>());
  return m;
}

void put(WireWriter& w, const MemberNews& n) {
  put(w, n.member);
  w.put(n.beat);
  put_count(w, n.hears.size());
  for (const PeerLink& link : n.hears) {
    put_id(w, link.peer);
    w.put(link.kind);
  }
}
MemberNews get_news(Reader& r) {
  MemberNews n;
  n.member = get_member(r);
  n.beat = r.number<std::uint64_t>();
  for (std::size_t i = r.count(kMembersMax); i > 0; --i) {
    const auto peer = r.id<NodeId>();
    n.hears.push_back({peer, r.choice<PathKind>(kPathKindCount)});
  }
  return n;
}

void put(WireWriter& w, const DesiredModel& m) {
  put_id(w, m.id);
  w.put(m.name).put(m.needs.split_bytes).put(m.needs.mirrored_bytes);
  w.put(m.needs.units).put(m.needs.layers).put(m.nodes_min);
  w.put(m.on_loss).put(m.on_return).put(m.wait_ms);
}
DesiredModel get_desired(Reader& r) {
  DesiredModel m;
  m.id = r.id<ModelId>();
  m.name = r.text(kMemberNameMax);
  m.needs.split_bytes = r.number<std::uint64_t>();
  m.needs.mirrored_bytes = r.number<std::uint64_t>();
  m.needs.units = r.number<std::uint32_t>();
  m.needs.layers = r.number<std::uint32_t>();
  m.nodes_min = r.number<std::uint32_t>();
  m.on_loss = r.choice<OnLoss>(2);
  m.on_return = r.choice<OnReturn>(2);
  m.wait_ms = r.number<std::uint64_t>();
  r.require(check_needs(m).has_value());
  return m;
}

void put(WireWriter& w, const Assignment& a) {
  w.put(a.epoch).put(a.term).put_array(std::span<const std::uint32_t>(a.stage_layers));
  put_count(w, a.shares.size());
  for (const NodeShare& s : a.shares) {
    put_id(w, s.node);
    w.put(s.incarnation).put(s.stage).put(s.units).put(s.bytes);
  }
}
Assignment get_assignment(Reader& r) {
  Assignment a;
  a.epoch = r.number<Epoch>();
  a.term = r.number<std::uint64_t>();
  for (std::size_t n = r.count(kRankCountMax); n > 0; --n)
    a.stage_layers.push_back(r.number<std::uint32_t>());
  for (std::size_t n = r.count(kRankCountMax); n > 0; --n) {
    NodeShare s;
    s.node = r.id<NodeId>();
    s.incarnation = r.number<std::uint64_t>();
    s.stage = r.number<std::uint32_t>();
    s.units = r.number<std::uint32_t>();
    s.bytes = r.number<std::uint64_t>();
    r.require(s.stage < a.stage_layers.size());
    a.shares.push_back(s);
  }
  r.require(!a.shares.empty());
  return a;
}

void put(WireWriter& w, const ClusterState& s) {
  put_count(w, s.voters.size());
  for (const NodeId& id : s.voters) put_id(w, id);
  w.put(s.last_epoch);
  put_count(w, s.models.size());
  for (const ModelState& m : s.models) {
    put(w, m.desired);
    w.put(m.assignment.has_value());
    if (m.assignment) put(w, *m.assignment);
  }
}
ClusterState get_state(Reader& r) {
  ClusterState s;
  for (std::size_t n = r.count(kVotersMax); n > 0; --n) s.voters.push_back(r.id<NodeId>());
  s.last_epoch = r.number<Epoch>();
  for (std::size_t n = r.count(kLoadedModelsMax); n > 0; --n) {
    ModelState m;
    m.desired = get_desired(r);
    if (r.flag()) m.assignment = get_assignment(r);
    s.models.push_back(std::move(m));
  }
  return s;
}

void put(WireWriter& w, const BeatMessage& m) {
  put(w, m.self);
  put_count(w, m.beats.size());
  for (const MemberBeat& b : m.beats) {
    put_id(w, b.id);
    w.put(b.incarnation).put(b.beat);
  }
  put_count(w, m.news.size());
  for (const MemberNews& n : m.news) put(w, n);
}
void get(Reader& r, BeatMessage& m) {
  m.self = get_news(r);
  for (std::size_t n = r.count(kMembersMax); n > 0; --n) {
    MemberBeat b;
    b.id = r.id<NodeId>();
    b.incarnation = r.number<std::uint64_t>();
    b.beat = r.number<std::uint64_t>();
    m.beats.push_back(b);
  }
  for (std::size_t n = r.count(kNewsMax); n > 0; --n) m.news.push_back(get_news(r));
}

// Terms grow by one with each election: one beyond this is damage, and would leave none to follow.
std::uint64_t get_term(Reader& r) {
  const auto term = r.number<std::uint64_t>();
  r.require(term < std::uint64_t{1} << 48);
  return term;
}

void put(WireWriter& w, const LeaseMessage& m) {
  w.put(m.kind).put(m.granted).put(m.term).put(m.sequence);
  w.put(m.value.term).put(m.value.version).put(m.committed);
  w.put(m.stamp.count()).put(m.state.has_value());
  if (m.state) put(w, *m.state);
}
void get(Reader& r, LeaseMessage& m) {
  m.kind = r.choice<LeaseMessage::Kind>(6);
  m.granted = r.flag();
  m.term = get_term(r);
  m.sequence = r.number<std::uint64_t>();
  m.value.term = get_term(r);
  m.value.version = r.number<std::uint64_t>();
  m.committed = r.number<std::uint64_t>();
  m.stamp = Time{r.number<Time::rep>()};
  if (r.flag()) m.state = get_state(r);
}

void put(WireWriter& w, const CommandMessage& m) {
  w.put(m.number).put(static_cast<std::uint8_t>(m.command.index()));
  if (const auto* load = std::get_if<NodeCore::LoadModel>(&m.command)) {
    put(w, load->model);
  } else if (const auto* unload = std::get_if<NodeCore::UnloadModel>(&m.command)) {
    put_id(w, unload->model);
  } else {
    const auto& failed = std::get<NodeCore::FailEpoch>(m.command);
    put_id(w, failed.model);
    w.put(failed.epoch);
    put_id(w, failed.culprit.value_or(NodeId{}));
    w.put(std::string_view(failed.reason).substr(0, kReasonMax));
  }
}
void get(Reader& r, CommandMessage& m) {
  m.number = r.number<std::uint64_t>();
  switch (r.choice<std::uint8_t>(3)) {
    case 0:
      m.command = NodeCore::LoadModel{get_desired(r)};
      break;
    case 1:
      m.command = NodeCore::UnloadModel{r.id<ModelId>()};
      break;
    default: {
      NodeCore::FailEpoch failed;
      failed.model = r.id<ModelId>();
      failed.epoch = r.number<Epoch>();
      const auto culprit = r.id<NodeId>();
      if (!culprit.none()) failed.culprit = culprit;
      failed.reason = r.text(kReasonMax);
      m.command = std::move(failed);
      break;
    }
  }
}

void put(WireWriter& w, const CommandReply& m) {
  w.put(m.number).put(m.status.has_value());
  if (!m.status)
    w.put(m.status.error().code)
        .put(std::string_view(m.status.error().message).substr(0, kReasonMax));
}
void get(Reader& r, CommandReply& m) {
  m.number = r.number<std::uint64_t>();
  if (r.flag()) return;
  const auto code = r.choice<ErrorCode>(static_cast<int>(ErrorCode::kInternal) + 1);
  m.status = fail(Error{code, r.text(kReasonMax), {}});
}

void put(WireWriter& w, const LeaveMessage& m) {
  w.put(m.incarnation);
}
void get(Reader& r, LeaveMessage& m) {
  m.incarnation = r.number<std::uint64_t>();
}

template <std::size_t kIndex = 0>
ClusterMessage get_kind(Reader& r, std::uint8_t kind) {
  if constexpr (kIndex == std::variant_size_v<ClusterMessage>) {
    r.require(false);
    return LeaveMessage{};
  } else {
    if (kind != kIndex) return get_kind<kIndex + 1>(r, kind);
    std::variant_alternative_t<kIndex, ClusterMessage> message;
    get(r, message);
    return message;
  }
}

std::vector<std::byte> bytes_of(const WireWriter& w) {
  return {w.bytes().begin(), w.bytes().end()};
}

}  // namespace

std::vector<std::byte> encode_message(const ClusterMessage& message) {
  WireWriter w;
  w.put(kMessageMagic).put(kClusterWireVersion).put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& m) { put(w, m); }, message);
  return bytes_of(w);
}

Result<ClusterMessage> decode_message(ByteSpan bytes) {
  if (bytes.size() > kClusterMessageBytesMax)
    return fail(ErrorCode::kProtocol, "a cluster message of {} bytes: at most {} are allowed",
                bytes.size(), kClusterMessageBytesMax);
  Reader r(bytes);
  if (r.number<std::uint32_t>() != kMessageMagic)
    return fail(ErrorCode::kProtocol, "these bytes are no cluster message");
  if (const auto version = r.number<std::uint16_t>(); version != kClusterWireVersion)
    return fail(ErrorCode::kProtocol,
                "the peer speaks version {} of the cluster protocol and this node version {}: "
                "run the same version of Sinew on both",
                version, kClusterWireVersion);
  const auto kind = r.number<std::uint8_t>();
  ClusterMessage message = get_kind(r, kind);
  SINEW_TRY(r.status("cluster"));
  return message;
}

std::vector<std::byte> encode_record(const LeaseRecord& record) {
  WireWriter w;
  w.put(kRecordMagic).put(kClusterWireVersion).put(record.term);
  put_id(w, record.vote);
  w.put(record.value.term).put(record.value.version);
  put(w, record.state);
  return bytes_of(w);
}

Result<LeaseRecord> decode_record(ByteSpan bytes) {
  Reader r(bytes);
  LeaseRecord record;
  r.require(r.number<std::uint32_t>() == kRecordMagic);
  r.require(r.number<std::uint16_t>() == kClusterWireVersion);
  record.term = r.number<std::uint64_t>();
  record.vote = r.id<NodeId>();
  record.value.term = r.number<std::uint64_t>();
  record.value.version = r.number<std::uint64_t>();
  record.state = get_state(r);
  if (const Status status = r.status("cluster"); !status)
    return fail(ErrorCode::kInvalidFile,
                "the cluster's state of {} bytes is damaged: {}; a node must not forget its "
                "promises: remove its state folder to join as a new node",
                bytes.size(), status.error().message);
  return record;
}

}  // namespace sinew
