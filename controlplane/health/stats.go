package health

import "github.com/guideway/guideway/dataplane/stats"

// checkStats are the stats below "cluster.<name>.health_check.".
type checkStats struct {
	Attempt        *stats.Counter `stat:"health_check.attempt"`
	Success        *stats.Counter `stat:"health_check.success"`
	Failure        *stats.Counter `stat:"health_check.failure"`
	PassiveFailure *stats.Counter `stat:"health_check.passive_failure"`
	NetworkFailure *stats.Counter `stat:"health_check.network_failure"`
	VerifyCluster  *stats.Counter `stat:"health_check.verify_cluster"`
	Healthy        *stats.Gauge   `stat:"health_check.healthy"`
	Degraded       *stats.Gauge   `stat:"health_check.degraded"`
}

// outlierStats are the stats below "cluster.<name>.outlier_detection.". Those of the algorithms that
// are not acted on exist and stay 0, as dashboards name them.
type outlierStats struct {
	Active            *stats.Gauge   `stat:"outlier_detection.ejections_active"`
	EnforcedTotal     *stats.Counter `stat:"outlier_detection.ejections_enforced_total"`
	Overflow          *stats.Counter `stat:"outlier_detection.ejections_overflow"`
	Detected5xx       *stats.Counter `stat:"outlier_detection.ejections_detected_consecutive_5xx"`
	Enforced5xx       *stats.Counter `stat:"outlier_detection.ejections_enforced_consecutive_5xx"`
	DetectedGateway   *stats.Counter `stat:"outlier_detection.ejections_detected_consecutive_gateway_failure"`
	EnforcedGateway   *stats.Counter `stat:"outlier_detection.ejections_enforced_consecutive_gateway_failure"`
	DetectedLocal     *stats.Counter `stat:"outlier_detection.ejections_detected_consecutive_local_origin_failure"`
	EnforcedLocal     *stats.Counter `stat:"outlier_detection.ejections_enforced_consecutive_local_origin_failure"`
	DetectedSR        *stats.Counter `stat:"outlier_detection.ejections_detected_success_rate"`
	EnforcedSR        *stats.Counter `stat:"outlier_detection.ejections_enforced_success_rate"`
	DetectedFP        *stats.Counter `stat:"outlier_detection.ejections_detected_failure_percentage"`
	EnforcedFP        *stats.Counter `stat:"outlier_detection.ejections_enforced_failure_percentage"`
	DetectedLocalSR   *stats.Counter `stat:"outlier_detection.ejections_detected_local_origin_success_rate"`
	EnforcedLocalSR   *stats.Counter `stat:"outlier_detection.ejections_enforced_local_origin_success_rate"`
	DetectedLocalFP   *stats.Counter `stat:"outlier_detection.ejections_detected_local_origin_failure_percentage"`
	EnforcedLocalFP   *stats.Counter `stat:"outlier_detection.ejections_enforced_local_origin_failure_percentage"`
	DetectedDegraded  *stats.Counter `stat:"outlier_detection.ejections_detected_degradation"`
	OldTotal          *stats.Counter `stat:"outlier_detection.ejections_total"`
	OldConsecutive5xx *stats.Counter `stat:"outlier_detection.ejections_consecutive_5xx"`
	OldSuccessRate    *stats.Counter `stat:"outlier_detection.ejections_success_rate"`
}
