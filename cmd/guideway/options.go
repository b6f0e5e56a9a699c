package main

import (
	"strconv"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// proto is the command line as /server_info shows it.
func (f *serveFlags) proto() *adminv3.CommandLineOptions {
	mode, _ := strconv.ParseUint(f.socketMode, 8, 32)
	o := &adminv3.CommandLineOptions{
		BaseId:                     uint64(f.baseID),
		UseDynamicBaseId:           f.dynamicBaseID,
		BaseIdPath:                 f.baseIDPath,
		Concurrency:                uint32(f.workers()),
		ConfigPath:                 f.path,
		ConfigYaml:                 f.yaml,
		AllowUnknownStaticFields:   f.allowUnknown,
		RejectUnknownDynamicFields: f.rejectDynamic,
		IgnoreUnknownDynamicFields: f.ignoreDynamic,
		AdminAddressPath:           f.adminAddressPath,
		LogLevel:                   f.level,
		ComponentLogLevel:          f.overrides,
		LogFormat:                  f.format,
		LogFormatEscaped:           f.formatEscaped,
		LogPath:                    f.logPath,
		ServiceCluster:             f.cluster,
		ServiceNode:                f.node,
		ServiceZone:                f.zone,
		FileFlushInterval:          durationpb.New(f.flushInterval()),
		DrainTime:                  durationpb.New(time.Duration(f.drainTime) * time.Second),
		ParentShutdownTime:         durationpb.New(time.Duration(f.parentShutdown) * time.Second),
		RestartEpoch:               f.restartEpoch,
		DisableHotRestart:          f.noHotRestart,
		CpusetThreads:              f.cpuset,
		SocketPath:                 f.socketPath,
		SocketMode:                 uint32(mode),
		StatsTag:                   f.statsTags,
	}
	if f.ipVersion == "v6" {
		o.LocalAddressIpVersion = adminv3.CommandLineOptions_v6
	}
	if f.drainStrategy == "immediate" {
		o.DrainStrategy = adminv3.CommandLineOptions_Immediate
	}
	switch f.mode {
	case "validate":
		o.Mode = adminv3.CommandLineOptions_Validate
	case "init_only":
		o.Mode = adminv3.CommandLineOptions_InitOnly
	}
	return o
}
