package controlplane

import (
	"strconv"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

// counters are the stats of the loop itself: under Envoy's names where Envoy has the like, else below
// "guideway.".
type counters struct {
	clusterAdded, clusterModified, clusterRemoved *stats.Counter
	activeClusters, warmingClusters               *stats.Gauge

	listenerAdded, listenerModified, listenerRemoved *stats.Counter
	listenerCreateSuccess, listenerCreateFailure     *stats.Counter
	listenerInPlaceUpdated                           *stats.Counter
	listenersActive, workersStarted                  *stats.Gauge
	live, state                                      *stats.Gauge
	initTime                                         *stats.Histogram
	listenersDraining, chainsDraining                *stats.Gauge
	cds, lds                                         *stats.Scope
	cdsReload, dynamicUnknown                        *stats.Counter
	runtimeKeys, runtimeLayers                       *stats.Gauge
	runtimeLoads                                     *stats.Counter
	unknownFields                                    *stats.Counter
	reloadSuccess, reloadUnchanged, reloadRejected   *stats.Counter
	updateRejected                                   *stats.Counter
	generation                                       *stats.Gauge
	applyTime                                        *stats.Histogram
	expedited, changes                               *stats.Counter
	slotsMoved, slotsUnavoidable, slotsCollateral    *stats.Counter
	flowsRemembered, flowsBroken                     *stats.Counter
}

func (k *counters) bind(s *stats.Store) {
	cm := s.Scope("cluster_manager.")
	k.clusterAdded, k.clusterModified, k.clusterRemoved = cm.Counter("cluster_added"), cm.Counter("cluster_modified"), cm.Counter("cluster_removed")
	k.activeClusters, k.warmingClusters = cm.Gauge("active_clusters"), cm.Gauge("warming_clusters")
	for _, name := range []string{"cluster_updated", "cluster_updated_via_merge", "update_merge_cancelled", "update_out_of_merge_window"} {
		cm.Counter(name)
	}

	lm := s.Scope("listener_manager.")
	k.listenerAdded, k.listenerModified, k.listenerRemoved = lm.Counter("listener_added"), lm.Counter("listener_modified"), lm.Counter("listener_removed")
	k.listenerCreateSuccess, k.listenerCreateFailure = lm.Counter("listener_create_success"), lm.Counter("listener_create_failure")
	k.listenerInPlaceUpdated = lm.Counter("listener_in_place_updated")
	lm.Counter("listener_stopped") // counted by the data plane
	k.listenersActive, k.workersStarted = lm.Gauge("total_listeners_active"), lm.Gauge("workers_started")
	k.listenersDraining, k.chainsDraining = lm.Gauge("total_listeners_draining"), lm.Gauge("total_filter_chains_draining")
	for _, name := range []string{"total_listeners_warming", "workers_pinned"} {
		lm.Gauge(name)
	}
	k.cds, k.lds = s.Scope("cluster_manager.cds."), s.Scope("listener_manager.lds.")

	server := s.Scope("server.")
	k.live, k.state = server.Gauge("live"), server.Gauge("state")
	k.state.Set(int64(PreInitializing))
	k.initTime = server.Histogram("initialization_time_ms")
	k.unknownFields, k.dynamicUnknown = server.Counter("static_unknown_fields"), server.Counter("dynamic_unknown_fields")

	runtime := s.Scope("runtime.")
	k.runtimeKeys, k.runtimeLayers = runtime.Gauge("num_keys"), runtime.Gauge("num_layers")
	k.runtimeLoads = runtime.Counter("load_success")
	for _, name := range []string{"load_error", "override_dir_exists", "override_dir_not_exists", "deprecated_feature_use"} {
		runtime.Counter(name)
	}
	runtime.Gauge("deprecated_feature_seen_since_process_start")

	own := s.Scope("guideway.")
	k.reloadSuccess, k.reloadUnchanged, k.reloadRejected = own.Counter("config.reload_success"), own.Counter("config.reload_unchanged"), own.Counter("config.reload_rejected")
	k.updateRejected = own.Counter("cluster_update_rejected")
	k.generation = own.Gauge("snapshot_generation")
	k.applyTime = own.Histogram("apply_ms")
	k.expedited, k.changes = own.Counter("changes_expedited"), own.Counter("changes")
	k.slotsMoved, k.slotsUnavoidable, k.slotsCollateral = own.Counter("slots_moved"), own.Counter("slots_moved_unavoidable"), own.Counter("slots_moved_collateral")
	k.flowsRemembered, k.flowsBroken = own.Counter("flows_remembered"), own.Counter("flows_broken")
}

func (k *counters) applied(took time.Duration) {
	k.applyTime.Record(float64(took.Microseconds()) / 1000)
}

func (k *counters) phase(p Phase) {
	k.state.Set(int64(p))
	if p == Live {
		k.live.Set(1)
	} else {
		k.live.Set(0)
	}
}

func (k *counters) publish(c *Control) {
	k.activeClusters.Set(int64(len(c.clusters)))
	k.warmingClusters.Set(int64(len(c.warming)))
	k.listenersActive.Set(int64(len(c.listeners) + len(c.http)))
	k.generation.Set(int64(c.generation))
}

func (k *counters) runtime(layers, keys int) {
	k.runtimeLayers.Set(int64(layers))
	k.runtimeKeys.Set(int64(keys))
	k.runtimeLoads.Inc()
}

// percent reads a runtime value as a whole percentage.
func percent(value string) (uint32, bool) {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || f < 0 {
		return 0, false
	}
	return uint32(min(f, 100)), true
}
