{{- define "snowmint.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name $name }}{{ end }}
{{- end }}
{{- end }}

{{- define "snowmint.account" -}}
{{- default (include "snowmint.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "snowmint.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "snowmint.podLabels" -}}
{{ include "snowmint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "snowmint.labels" -}}
{{ include "snowmint.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "snowmint.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* Not empty if the store is Lease objects. */}}
{{- define "snowmint.onLeases" -}}
{{- if hasPrefix "kubernetes:" .Values.store.url }}yes{{ end }}
{{- end }}

{{/* Not empty if clients need tokens and TLS. */}}
{{- define "snowmint.secured" -}}
{{- $tls := .Values.tls.secretName }}
{{- $tokens := .Values.tokens.secretName }}
{{- if and $tls $tokens }}yes
{{- else if or $tls $tokens }}
{{- fail "tls.secretName and tokens.secretName require each other: set both, or neither" }}
{{- else if not .Values.networkPolicy.enabled }}
{{- fail "without networkPolicy.enabled, every pod of the cluster could take ids: set tls.secretName and tokens.secretName" }}
{{- end }}
{{- end }}

{{/* The ports of a Service. Proxies treat those without appProtocol as TCP. */}}
{{- define "snowmint.ports" -}}
{{- $secured := include "snowmint.secured" . }}
- name: http
  port: {{ toJson .Values.service.ports.http }}
  targetPort: http
  appProtocol: {{ ternary "https" "http" (not (empty $secured)) }}
- name: grpc
  port: {{ toJson .Values.service.ports.grpc }}
  targetPort: http
  appProtocol: {{ ternary "https" "kubernetes.io/h2c" (not (empty $secured)) }}
- name: resp
  port: {{ toJson .Values.service.ports.resp }}
  targetPort: resp
{{- end }}
