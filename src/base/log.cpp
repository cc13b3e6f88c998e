#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string>

namespace sinew {

void set_up_log(std::string_view name, std::string_view level) {
  auto logger = std::make_shared<spdlog::logger>(
      std::string(name), std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%n: %^%v%$");
  logger->set_level(level.empty() ? spdlog::level::info
                                  : spdlog::level::from_str(std::string(level)));
  if (logger->level() == spdlog::level::off && level != "off")
    logger->set_level(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace sinew
