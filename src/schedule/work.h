// How much a step does.
#pragma once

#include <cstdint>

#include "longspan/schedule.h"

namespace longspan {

/// Counted FLOPs of the tiles.
double flops(const Schedule& schedule, const Part& part);
double flops(const Schedule& schedule, const Step& step);

/// Bytes that partial results of 16-bit problems read and write beside those of whole ones: O is
/// merged with, gradients are added to FP32 tile by tile.
int64_t bytes_added(const Schedule& schedule, const Part& part);

/// Bytes that copies, delta and fills read and write.
int64_t bytes_touched(const Schedule& schedule, const Step& step);

/// Bytes of all messages of a transfer step, both ways.
int64_t bytes_carried(const Step& step);

/// Bytes that a pull step brings from peers.
int64_t bytes_pulled(const Schedule& schedule, const Step& step);

/// Memory of the buffers that forward keeps for backward.
int64_t saved_bytes(const Schedule& schedule);

/// Seconds of a message between two ranks that have nothing else to do.
double message_seconds(const Message& message, int rank, const Topology& topology,
                       const Rates& rates);

/// Seconds of a pull, which runs beside the tiles that need it.
double pull_seconds(const Schedule& schedule, const Step& step, const Rates& rates);

/// Seconds of a compute step without parts.
double step_seconds(const Schedule& schedule, const Step& step, const Rates& rates);
/// Seconds of one part of an attend step, launch excluded.
double part_seconds(const Schedule& schedule, const Part& part, const Rates& rates);

/// The figures of a rank that no clock changes; spans of every step, all zero.
Cost cost_without_time(const Schedule& schedule);

}  // namespace longspan
