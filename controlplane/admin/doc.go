// Package admin is the admin server: Envoy's endpoints with Envoy's shapes, so that probes, dashboards
// and scripts made for Envoy keep working, and Guideway's own: a page at "/" and /maglev/<cluster>. It
// shows and steers the process through State, and knows neither how configurations are read nor how
// traffic is carried.
package admin
