package xds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/guideway/guideway/controlplane/envoy"
)

// secrets finds certificates: inline, in files, in the bootstrap's secrets or in files that hold a secret
// (SDS by path_config_source). They are read when they are needed, so that rotated files count for the
// next connection.
type secrets struct{ boot *bootstrapv3.Bootstrap }

// clientTLS is the configuration for connections to a management server; nil without TLS.
func (s secrets) clientTLS(socket *corev3.TransportSocket) (*tls.Config, error) {
	if socket == nil || socket.GetTypedConfig() == nil || !socket.GetTypedConfig().MessageIs(&tlsv3.UpstreamTlsContext{}) {
		return nil, nil
	}
	up := &tlsv3.UpstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(up); err != nil {
		return nil, fmt.Errorf("transport_socket: %w", err)
	}
	common := up.GetCommonTlsContext()
	c := &tls.Config{
		ServerName: up.GetSni(),
		NextProtos: []string{"h2"},
		// What is to be verified is said by validation_context and done below: Envoy verifies the chain
		// only if trusted_ca is given, and the name only if it is told which.
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS12,
	}
	if err := tlsParams(c, common.GetTlsParams()); err != nil {
		return nil, err
	}
	certs := common.GetTlsCertificates()
	for _, sds := range common.GetTlsCertificateSdsSecretConfigs() {
		secret, err := s.find(sds)
		if err != nil {
			return nil, err
		}
		if secret.GetTlsCertificate() == nil {
			return nil, fmt.Errorf("secret %q holds no tls_certificate", sds.GetName())
		}
		certs = append(certs, secret.GetTlsCertificate())
	}
	for _, m := range certs {
		cert, err := keyPair(m)
		if err != nil {
			return nil, err
		}
		c.Certificates = append(c.Certificates, cert)
	}
	validation, err := s.validation(common)
	if err != nil {
		return nil, err
	}
	if validation != nil {
		if c.VerifyConnection, err = verifier(validation); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// validation is the validation context, wherever it stands; nil for none.
func (s secrets) validation(common *tlsv3.CommonTlsContext) (*tlsv3.CertificateValidationContext, error) {
	if v := common.GetValidationContext(); v != nil {
		return v, nil
	}
	combined := common.GetCombinedValidationContext()
	sds := common.GetValidationContextSdsSecretConfig()
	if combined != nil {
		sds = combined.GetValidationContextSdsSecretConfig()
	}
	if sds == nil {
		return combined.GetDefaultValidationContext(), nil
	}
	secret, err := s.find(sds)
	if err != nil {
		return nil, err
	}
	v := secret.GetValidationContext()
	if v == nil {
		return nil, fmt.Errorf("secret %q holds no validation_context", sds.GetName())
	}
	if d := combined.GetDefaultValidationContext(); d != nil {
		// The dynamic one is merged over the default: lists are appended.
		if v.TrustedCa == nil {
			v.TrustedCa = d.GetTrustedCa()
		}
		v.MatchTypedSubjectAltNames = append(v.MatchTypedSubjectAltNames, d.GetMatchTypedSubjectAltNames()...)
	}
	return v, nil
}

// find reads a secret.
func (s secrets) find(sds *tlsv3.SdsSecretConfig) (*tlsv3.Secret, error) {
	source := sds.GetSdsConfig()
	if source == nil {
		for _, m := range s.boot.GetStaticResources().GetSecrets() {
			if m.GetName() == sds.GetName() {
				return m, nil
			}
		}
		return nil, fmt.Errorf("secret %q is not in static_resources.secrets", sds.GetName())
	}
	path := source.GetPathConfigSource().GetPath()
	if path == "" {
		path = source.GetPath()
	}
	if path == "" {
		return nil, fmt.Errorf("secret %q: only files are read; use path_config_source", sds.GetName())
	}
	r := &discoveryv3.DiscoveryResponse{}
	if _, err := envoy.ReadMessage(path, r, true); err != nil {
		return nil, fmt.Errorf("secret %q: %w", sds.GetName(), err)
	}
	for _, a := range r.GetResources() {
		m := &tlsv3.Secret{}
		if err := a.UnmarshalTo(m); err != nil {
			return nil, fmt.Errorf("%s: a resource is no secret: %w", path, err)
		}
		if m.GetName() == sds.GetName() {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s has no secret %q", path, sds.GetName())
}

// data reads a data source.
func data(d *corev3.DataSource) ([]byte, error) {
	switch v := d.GetSpecifier().(type) {
	case *corev3.DataSource_Filename:
		b, err := os.ReadFile(v.Filename)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate or key: %w", err)
		}
		return b, nil
	case *corev3.DataSource_InlineBytes:
		return v.InlineBytes, nil
	case *corev3.DataSource_InlineString:
		return []byte(v.InlineString), nil
	case *corev3.DataSource_EnvironmentVariable:
		return []byte(os.Getenv(v.EnvironmentVariable)), nil
	}
	return nil, errors.New("a certificate or key has no source")
}

func keyPair(m *tlsv3.TlsCertificate) (tls.Certificate, error) {
	chain, err := data(m.GetCertificateChain())
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := data(m.GetPrivateKey())
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("client certificate: %w", err)
	}
	return cert, nil
}

// verifier checks the server's certificate as a validation context says.
func verifier(v *tlsv3.CertificateValidationContext) (func(tls.ConnectionState) error, error) {
	var roots *x509.CertPool
	if v.GetTrustedCa() != nil {
		pem, err := data(v.GetTrustedCa())
		if err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New("trusted_ca holds no certificate in PEM form")
		}
	}
	if v.GetSystemRootCerts() != nil && roots == nil {
		var err error
		if roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("system_root_certs: %w", err)
		}
	}
	var names []func(*x509.Certificate) bool
	for _, m := range v.GetMatchSubjectAltNames() { // deprecated: of any kind
		match, err := textMatch(m)
		if err != nil {
			return nil, fmt.Errorf("match_subject_alt_names: %w", err)
		}
		for kind := range tlsv3.SubjectAltNameMatcher_SanType_name {
			names = append(names, func(c *x509.Certificate) bool {
				return hasName(c, tlsv3.SubjectAltNameMatcher_SanType(kind), match)
			})
		}
	}
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		match, err := textMatch(m.GetMatcher())
		if err != nil {
			return nil, fmt.Errorf("match_typed_subject_alt_names: %w", err)
		}
		kind := m.GetSanType()
		names = append(names, func(c *x509.Certificate) bool { return hasName(c, kind, match) })
	}
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the management server showed no certificate")
		}
		leaf := s.PeerCertificates[0]
		if roots != nil && v.GetTrustChainVerification() != tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			for _, c := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			if _, err := leaf.Verify(o); err != nil {
				var expired x509.CertificateInvalidError
				if !errors.As(err, &expired) || expired.Reason != x509.Expired || !v.GetAllowExpiredCertificate() {
					return fmt.Errorf("the management server's certificate: %w", err)
				}
			}
		}
		for _, has := range names {
			if has(leaf) {
				return nil
			}
		}
		if len(names) > 0 {
			return fmt.Errorf("the management server's certificate has none of the names in match_typed_subject_alt_names (its DNS names: %s)", strings.Join(leaf.DNSNames, ", "))
		}
		return nil
	}, nil
}

// hasName reports whether a certificate has a subject alternative name of a kind that matches.
func hasName(c *x509.Certificate, kind tlsv3.SubjectAltNameMatcher_SanType, match func(string) bool) bool {
	switch kind {
	case tlsv3.SubjectAltNameMatcher_DNS:
		for _, n := range c.DNSNames {
			if match(n) {
				return true
			}
		}
	case tlsv3.SubjectAltNameMatcher_URI:
		for _, u := range c.URIs {
			if match(u.String()) {
				return true
			}
		}
	case tlsv3.SubjectAltNameMatcher_EMAIL:
		for _, n := range c.EmailAddresses {
			if match(n) {
				return true
			}
		}
	case tlsv3.SubjectAltNameMatcher_IP_ADDRESS:
		for _, ip := range c.IPAddresses {
			if match(net.IP(ip).String()) {
				return true
			}
		}
	}
	return false
}

func textMatch(m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		want := fold(p.Exact)
		return func(s string) bool { return wildcardMatch(fold(s), want) }, nil
	case *matcherv3.StringMatcher_Prefix:
		return func(s string) bool { return strings.HasPrefix(fold(s), fold(p.Prefix)) }, nil
	case *matcherv3.StringMatcher_Suffix:
		return func(s string) bool { return strings.HasSuffix(fold(s), fold(p.Suffix)) }, nil
	case *matcherv3.StringMatcher_Contains:
		return func(s string) bool { return strings.Contains(fold(s), fold(p.Contains)) }, nil
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := regexp.Compile("^(?:" + p.SafeRegex.GetRegex() + ")$")
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	return nil, errors.New("the matcher has no pattern")
}

// wildcardMatch compares a certificate's name, which may begin with "*.", with the one wanted.
func wildcardMatch(name, want string) bool {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		_, domain, found := strings.Cut(want, ".")
		return found && domain == rest
	}
	return name == want
}

// tlsParams takes versions, cipher suites and curves.
func tlsParams(c *tls.Config, p *tlsv3.TlsParameters) error {
	versions := map[tlsv3.TlsParameters_TlsProtocol]uint16{
		tlsv3.TlsParameters_TLSv1_0: tls.VersionTLS10, tlsv3.TlsParameters_TLSv1_1: tls.VersionTLS11,
		tlsv3.TlsParameters_TLSv1_2: tls.VersionTLS12, tlsv3.TlsParameters_TLSv1_3: tls.VersionTLS13,
	}
	if v, ok := versions[p.GetTlsMinimumProtocolVersion()]; ok {
		c.MinVersion = v
	}
	if v, ok := versions[p.GetTlsMaximumProtocolVersion()]; ok {
		c.MaxVersion = v
	}
	for _, list := range p.GetCipherSuites() {
		for _, name := range strings.Split(strings.Trim(list, "[]"), "|") {
			id, err := cipherSuite(name)
			if err != nil {
				return err
			}
			c.CipherSuites = append(c.CipherSuites, id)
		}
	}
	curves := map[string]tls.CurveID{"X25519": tls.X25519, "P-256": tls.CurveP256, "P-384": tls.CurveP384, "P-521": tls.CurveP521, "X25519MLKEM768": tls.X25519MLKEM768}
	for _, name := range p.GetEcdhCurves() {
		id, ok := curves[name]
		if !ok {
			return fmt.Errorf("tls_params.ecdh_curves: %q is not known; use X25519, P-256, P-384, P-521 or X25519MLKEM768", name)
		}
		c.CurvePreferences = append(c.CurvePreferences, id)
	}
	return nil
}

// cipherSuite finds a suite of TLS 1.2 by OpenSSL's name or IANA's.
func cipherSuite(name string) (uint16, error) {
	openssl := map[string]uint16{
		"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256": tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384": tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305": tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"ECDHE-ECDSA-AES128-SHA": tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, "ECDHE-RSA-AES128-SHA": tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		"ECDHE-ECDSA-AES256-SHA": tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, "ECDHE-RSA-AES256-SHA": tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
		"AES128-GCM-SHA256": tls.TLS_RSA_WITH_AES_128_GCM_SHA256, "AES256-GCM-SHA384": tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		"AES128-SHA": tls.TLS_RSA_WITH_AES_128_CBC_SHA, "AES256-SHA": tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	}
	if id, ok := openssl[name]; ok {
		return id, nil
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if s.Name == name {
			return s.ID, nil
		}
	}
	return 0, fmt.Errorf("tls_params.cipher_suites: %q is not known", name)
}
