package envoy

import "google.golang.org/protobuf/reflect/protoreflect"

const (
	tlsReads   = "certificates are read anew for each connection"
	tlsNoExtra = "Envoy's extensions do not run here"
)

// tlsFields covers TLS to a management server, the only TLS that Guideway speaks.
var tlsFields = table{
	"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext": {
		acted: "common_tls_context sni",
		ignored: notes{
			"max_session_keys":      "sessions are not resumed",
			"allow_renegotiation":   "TLS 1.2 connections are not renegotiated",
			"enforce_rsa_key_usage": "key usage is not looked at",
		},
		rejected: notes{
			"auto_host_sni":           "set sni",
			"auto_sni_san_validation": "set match_typed_subject_alt_names",
		},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"auto_host_sni": isFalse, "auto_sni_san_validation": isFalse,
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext": {
		acted: `tls_params tls_certificates tls_certificate_sds_secret_configs validation_context
			validation_context_sds_secret_config combined_validation_context`,
		ignored: notes{
			"alpn_protocols": "gRPC speaks h2",
			"key_log":        "keys are not logged",
		},
		rejected: notes{
			"tls_certificate_provider_instance":                tlsNoExtra,
			"custom_tls_certificate_selector":                  tlsNoExtra,
			"tls_certificate_certificate_provider":             tlsNoExtra,
			"tls_certificate_certificate_provider_instance":    tlsNoExtra,
			"custom_handshaker":                                tlsNoExtra,
			"validation_context_certificate_provider":          tlsNoExtra,
			"validation_context_certificate_provider_instance": tlsNoExtra,
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext": {
		acted: "default_validation_context validation_context_sds_secret_config",
		rejected: notes{
			"validation_context_certificate_provider":          tlsNoExtra,
			"validation_context_certificate_provider_instance": tlsNoExtra,
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.TlsCertificate": {
		acted:   "certificate_chain private_key",
		ignored: notes{"watched_directory": tlsReads, "ocsp_staple": "it is for servers", "signed_certificate_timestamp": "it is for servers"},
		rejected: notes{
			"pkcs12":               "use certificate_chain and private_key in PEM form",
			"private_key_provider": tlsNoExtra,
			"password":             "keys with a password are not supported",
			"tls_params":           "use the tls_params of common_tls_context",
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": {
		acted: `trusted_ca system_root_certs match_typed_subject_alt_names match_subject_alt_names
			allow_expired_certificate trust_chain_verification`,
		ignored: notes{
			"watched_directory":       tlsReads,
			"suppress_client_ca_list": "it is for servers",
		},
		rejected: notes{
			"ca_certificate_provider_instance":     tlsNoExtra,
			"custom_validator_config":              tlsNoExtra,
			"verify_certificate_spki":              "use trusted_ca and match_typed_subject_alt_names",
			"verify_certificate_hash":              "use trusted_ca and match_typed_subject_alt_names",
			"require_signed_certificate_timestamp": "timestamps are not looked at",
			"crl":                                  "revocation lists are not read",
			"only_verify_leaf_cert_crl":            "revocation lists are not read",
			"max_verify_depth":                     "chains of any length are taken",
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.SystemRootCerts": {},
	"envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher": {
		acted:    "san_type matcher",
		rejected: notes{"oid": "other names are not looked at"},
	},
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": {acted: "name sds_config"},
	"envoy.extensions.transport_sockets.tls.v3.TlsParameters": {
		acted: "tls_minimum_protocol_version tls_maximum_protocol_version cipher_suites ecdh_curves",
		ignored: notes{
			"signature_algorithms": "Go's are used",
			"compliance_policies":  "build with GOFIPS140 for FIPS",
		},
	},
	"envoy.extensions.transport_sockets.tls.v3.Secret": {
		acted: "name tls_certificate validation_context",
		rejected: notes{
			"session_ticket_keys": "it is for servers",
			"generic_secret":      "nothing uses one",
		},
	},
}
