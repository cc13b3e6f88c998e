#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/hub.h"
#include "agent/secret.h"
#include "cluster/node_core.h"

namespace sinew {

// What the agent answers its commands: JSON. The commands print it as it is, or as a table.
std::string report_nodes(const NodeCore& core, Time now, const ClusterSecret& secret,
                         const std::map<std::string, std::uint64_t>& refusals);
std::string report_links(const NodeCore& core, const std::vector<Hub::Path>& paths);
std::string report_error(const std::string& text);

// The tables. kProtocol if `json` is not what the reports above make; their error, if it is one.
Result<std::string> nodes_table(const std::string& json);
Result<std::string> links_table(const std::string& json);
// Lines "2026-12-03 13:04:05 joined 1a2b3c4d: text" from the lines of the event file.
std::string events_table(const std::string& lines);

}  // namespace sinew
