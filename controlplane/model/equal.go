package model

import "slices"

// Equal reports whether two endpoints say the same.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.Address == o.Address && e.Host == o.Host && e.Port == o.Port && e.Hostname == o.Hostname && e.HashKey == o.HashKey &&
		e.Canary == o.Canary && e.Weight == o.Weight && e.Health == o.Health && e.HealthStatus == o.HealthStatus &&
		e.HealthCheckPort == o.HealthCheckPort && e.HealthCheckAddress == o.HealthCheckAddress && e.HealthCheckHost == o.HealthCheckHost &&
		e.DisableActiveHC == o.DisableActiveHC && e.Forwarding == o.Forwarding && slices.Equal(e.Additional, o.Additional)
}

// Equal reports whether two localities say the same.
func (l *LocalityEndpoints) Equal(o *LocalityEndpoints) bool {
	if l.Locality != o.Locality || l.HasLocality != o.HasLocality || l.Weight != o.Weight || l.HasWeight != o.HasWeight ||
		l.Priority != o.Priority || len(l.Endpoints) != len(o.Endpoints) {
		return false
	}
	for i := range l.Endpoints {
		if !l.Endpoints[i].Equal(&o.Endpoints[i]) {
			return false
		}
	}
	return true
}

// Equal reports whether two assignments say the same, in the same order.
func (a *Assignment) Equal(o *Assignment) bool {
	if a.ClusterName != o.ClusterName || a.OverprovisioningFactor != o.OverprovisioningFactor ||
		a.WeightedPriorityHealth != o.WeightedPriorityHealth || a.StaleAfter != o.StaleAfter || len(a.Localities) != len(o.Localities) {
		return false
	}
	for i := range a.Localities {
		if !a.Localities[i].Equal(&o.Localities[i]) {
			return false
		}
	}
	return true
}
