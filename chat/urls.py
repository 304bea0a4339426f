"""Pages of the chat and the calls they make."""

from django.urls import path

from chat import views

urlpatterns = [
    path("", views.new_chat, name="chat"),
    path("c/<uuid:conversation_id>", views.conversation, name="conversation"),
    path("c/<uuid:conversation_id>/rename", views.rename, name="rename"),
    path("c/<uuid:conversation_id>/delete", views.delete, name="delete"),
    path("c/<uuid:conversation_id>/campus-only", views.campus_only, name="campus-only"),
    path("c/<uuid:conversation_id>/turns", views.older_turns, name="older-turns"),
    path("conversations", views.conversations, name="conversations"),
    path("search", views.search, name="search"),
    path("me/theme", views.theme, name="theme"),
]
