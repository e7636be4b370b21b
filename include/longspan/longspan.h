// The whole public API. Start at engine.h; problem.h says what can be computed.
#pragma once

#include "longspan/communicator.h"
#include "longspan/decline.h"
#include "longspan/device.h"
#include "longspan/dropout.h"
#include "longspan/engine.h"
#include "longspan/libraries.h"
#include "longspan/mask.h"
#include "longspan/modification.h"
#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/promise.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"
#include "longspan/status.h"
#include "longspan/tensor.h"
#include "longspan/version.h"
