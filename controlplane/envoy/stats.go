package envoy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/guideway/guideway/controlplane/model"
)

// statsConfig reads stats_config.
func statsConfig(c *metricsv3.StatsConfig, at cursor) model.StatsConfig {
	out := model.StatsConfig{UseAllDefaultTags: c.GetUseAllDefaultTags() == nil || c.GetUseAllDefaultTags().GetValue()}
	for i, tag := range c.GetStatsTags() {
		where := at.field("stats_tags").at(i)
		spec := model.TagSpecifier{Name: tag.GetTagName(), Regex: tag.GetRegex(), Fixed: tag.GetFixedValue()}
		if spec.Regex != "" {
			if _, err := regexp.Compile(spec.Regex); err != nil {
				where.field("regex").fail("%v", err)
			}
		}
		if tag.GetTagValue() == nil && !strings.HasPrefix(spec.Name, "envoy.") {
			where.failAs(fmt.Sprintf("No regex specified for tag specifier and no default regex for name: '%s'", spec.Name),
				"tag %q needs a regex or a fixed_value: Envoy has no tag of that name", spec.Name)
		}
		out.Tags = append(out.Tags, spec)
	}
	out.Reject = rejects(c.GetStatsMatcher(), at.field("stats_matcher"))
	for i, b := range c.GetHistogramBucketSettings() {
		where := at.field("histogram_bucket_settings").at(i)
		match := where.field("match").stringMatch(b.GetMatch())
		if match == nil {
			continue
		}
		if !slices.IsSorted(b.GetBuckets()) {
			where.field("buckets").fail("buckets must be in ascending order")
		}
		out.Buckets = append(out.Buckets, model.HistogramBuckets{Match: match, Bounds: b.GetBuckets()})
	}
	return out
}

// rejects compiles stats_matcher; nil keeps all stats.
func rejects(m *metricsv3.StatsMatcher, at cursor) func(string) bool {
	switch s := m.GetStatsMatcher().(type) {
	case *metricsv3.StatsMatcher_RejectAll:
		if s.RejectAll {
			return func(string) bool { return true }
		}
	case *metricsv3.StatsMatcher_ExclusionList:
		return anyOf(s.ExclusionList, at.field("exclusion_list"))
	case *metricsv3.StatsMatcher_InclusionList:
		in := anyOf(s.InclusionList, at.field("inclusion_list"))
		return func(name string) bool { return !in(name) }
	}
	return nil
}

func anyOf(l *matcherv3.ListStringMatcher, at cursor) func(string) bool {
	var all []func(string) bool
	for i, p := range l.GetPatterns() {
		if f := at.field("patterns").at(i).stringMatch(p); f != nil {
			all = append(all, f)
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(f func(string) bool) bool { return f(name) })
	}
}
