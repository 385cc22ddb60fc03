{{- define "weir-gateway.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir-gateway.labels" -}}
app.kubernetes.io/name: weir-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
