package admin

import (
	"bytes"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// messageJSON prints a message as Envoy does: proto names, one blank a level, a newline at the end.
// defaults prints fields that have their default value too. (protojson varies its blanks on purpose, so
// the text is laid out anew.)
func messageJSON(m proto.Message, defaults bool) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: defaults}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", " "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

func writeMessage(w http.ResponseWriter, m proto.Message, defaults bool) {
	b, err := messageJSON(m, defaults)
	if err != nil {
		write(w, http.StatusInternalServerError, bareText, "this cannot be shown as JSON: "+err.Error()+"\n")
		return
	}
	write(w, http.StatusOK, jsonText, string(b))
}

// writeIndented prints a Go value in the same layout.
func writeIndented(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		write(w, http.StatusInternalServerError, bareText, "this cannot be shown as JSON: "+err.Error()+"\n")
		return
	}
	write(w, http.StatusOK, jsonText, string(b)+"\n")
}

// quote returns s as a JSON string, without HTML escapes.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""`
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
