//! SPOE agents, FastCGI applications, Lua scripts, OpenTelemetry.

mod fastcgi;
mod fastcgi_connections;
mod lua;
mod lua_events;
mod lua_filters;
mod lua_limits;
mod lua_scripts;
mod lua_services;
mod opentelemetry;
mod opentelemetry_delivery;
mod opentelemetry_export;
mod php;
mod recipes;
mod spoe;
mod spoe_agents;
mod spoe_rules;
mod spoe_sessions;
